"""The errors geoswarm raises, and nothing else.

    GeoswarmError
    ├── InputError        (ValueError)    the caller's input is wrong: settings, schemas, plans
    │   ├── SettingsError                 a settings file or value; names the key and the remedy
    │   ├── SchemaError                   a column is missing or of the wrong type
    │   └── PlanError                     a plan that would not cover each cell once
    ├── StateError        (RuntimeError)  files on disk cannot be trusted or used
    │   ├── CorruptState                  a checksum differs, a file is cut short or missing
    │   └── FencedOut                     another engine owns this checkpoint
    ├── StreamError       (RuntimeError)  a batch could not be completed
    └── MachineError      (OSError)       the machine lacks something: Java, a jar, a broker

A message states what is wrong, how much of it, and what to do about it. A bad *row* is no error: it goes to the
dead letters with a reason (`flow/validate.py`).
"""


class GeoswarmError(Exception):
    pass


class InputError(GeoswarmError, ValueError):
    pass


class SettingsError(InputError):
    pass


class SchemaError(InputError):
    pass


class PlanError(InputError):
    pass


class StateError(GeoswarmError, RuntimeError):
    pass


class CorruptState(StateError):  # noqa: N818 - reads better than CorruptStateError in a traceback
    pass


class FencedOut(StateError):  # noqa: N818
    pass


class StreamError(GeoswarmError, RuntimeError):
    pass


class MachineError(GeoswarmError, OSError):
    pass
