"""The rules of what a pod's containers say: images, commands, environment, mounts."""
