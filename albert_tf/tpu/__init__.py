"""Compiling the training step for TPUs without one."""
