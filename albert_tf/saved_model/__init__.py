"""Reading an export, without Keras and without the tensorflow-text package."""
