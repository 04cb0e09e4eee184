"""The Kubeflow face of the stages: one folder for each container image."""
