"""What can go wrong for a user, each with a sentence that says what was given, what was expected and what to do."""


class VitvizError(ValueError):
    """The base of every error whose text is written for the person at the page; anything else is a bug."""


class ImageError(VitvizError):
    """The upload is no picture, or one that cannot be analysed."""


class CheckpointError(VitvizError):
    """A checkpoint is unknown, or its weights do not fit or are not safe to read."""


class UnsupportedModel(VitvizError):
    """The model is no plain Vision Transformer, or its attention could not be captured truthfully."""


class HubError(VitvizError):
    """The model hub cannot be reached, refused, or broke off."""


class OutOfMemory(VitvizError):
    """The device or the machine has too little memory for what was asked."""
