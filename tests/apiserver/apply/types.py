"""Types made by hand: short names for the shapes that matter to ownership."""

from kvstack.apimachinery.schema.types import NO_DEFAULT, Field, Shape, Type

STRING = Type(Shape.STRING)
INT = Type(Shape.INT64)
BOOL = Type(Shape.BOOL)
FLOAT = Type(Shape.FLOAT64)
QUANTITY = Type(Shape.QUANTITY)
INT_OR_STRING = Type(Shape.INT_OR_STRING)
ANY = Type(Shape.RAW)
RAW_EXTENSION = Type(Shape.RAW, "io.k8s.apimachinery.pkg.runtime.RawExtension")


def field(name: str, type_: Type, default: object = NO_DEFAULT, *, omits: bool = True) -> Field:
    made = Field(name, type_)
    made.default = default
    made.omit_empty = omits
    return made


def struct(*fields: Field, atomic: bool = False, open_: bool = False, **more: Type) -> Type:
    made = Type(Shape.STRUCT)
    made.fields = {
        **{each.name: each for each in fields},
        **{name: field(name, type_) for name, type_ in more.items()},
    }
    made.map_type = "atomic" if atomic else "granular"
    made.preserves_unknown = open_
    return made


def map_of(values: Type, *, atomic: bool = False) -> Type:
    made = Type(Shape.MAP)
    made.element = values
    made.map_type = "atomic" if atomic else "granular"
    return made


def list_of(items: Type) -> Type:
    made = Type(Shape.LIST)
    made.element = items
    return made


def set_of(items: Type) -> Type:
    made = list_of(items)
    made.list_type = "set"
    return made


def list_by(*keys: str, items: Type) -> Type:
    made = list_of(items)
    made.list_type = "map"
    made.list_keys = keys
    return made


PORT = struct(
    field("port", INT, 0),
    field("protocol", STRING, "TCP"),
    name=STRING,
)
CONTAINER = struct(
    field("name", STRING, ""),
    image=STRING,
    ports=list_by("port", "protocol", items=PORT),
    args=list_of(STRING),
    limits=map_of(QUANTITY),
)
META = struct(
    name=STRING,
    namespace=STRING,
    uid=STRING,
    resourceVersion=STRING,
    generation=INT,
    labels=map_of(STRING),
    annotations=map_of(STRING),
    finalizers=set_of(STRING),
    managedFields=list_of(Type(Shape.FIELDS_V1)),
)
SPEC = struct(
    replicas=INT,
    paused=BOOL,
    selector=struct(matchLabels=map_of(STRING), atomic=True),
    containers=list_by("name", items=CONTAINER),
    strategy=struct(type=STRING, rolling=struct(surge=INT_OR_STRING)),
)
APP = struct(
    field("metadata", META, omits=False),
    field("spec", SPEC, omits=False),
    apiVersion=STRING,
    kind=STRING,
    data=map_of(STRING),
    status=struct(ready=INT, conditions=list_by("type", items=struct(type=STRING, status=STRING))),
)
"""A kind with one of everything."""
