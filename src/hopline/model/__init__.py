"""GraphModel: query encoder, walk, propagation, path attention, the bilinear branch and the heads."""

from hopline.graph import STATUS_INDEX
from hopline.model.forward import Forward
from hopline.model.graph_model import GraphModel, build_model
from hopline.model.transductive import BilinearBranch

__all__ = ["STATUS_INDEX", "BilinearBranch", "Forward", "GraphModel", "build_model"]
