"""When a request is over: eos, stop ids, stop strings, stop regexes and the length.

Above `params`, below both doors to transformers. A `StopRules` belongs to one request and is pushed
its new tokens in order; the prompt never takes part.
"""

from logitkit.stops.rules import Finish, StopRegexTimeout, StopRules

__all__ = ["Finish", "StopRegexTimeout", "StopRules"]
