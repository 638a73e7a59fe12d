"""Before torch 2.14 a backend is not looked up by its name. So every import of torch comes here, which must not fail."""


def load() -> None:
    import torch

    if tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14) or not torch.distributed.is_available():
        return
    try:
        import kolo_torch
    except Exception as e:
        import warnings
        warnings.warn(str(e), stacklevel=2)
