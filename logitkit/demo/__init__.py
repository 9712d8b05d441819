"""The demo: a small real model, fetched once, and what `logitkit demo` shows with it."""

from logitkit.demo.model import demo_model_path, load_demo_model, load_model

__all__ = ["demo_model_path", "load_demo_model", "load_model"]
