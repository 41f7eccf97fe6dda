"""The launcher's settings: environment variables, as an env script exports them."""

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from qwen3_rl.errors import UserError


class Settings(BaseModel):
    """Every field is the environment variable of the same name in upper case."""

    model_config = ConfigDict(frozen=True)

    npus_per_node: int = Field(16, ge=1)  # dies that Ray offers as the resource "NPU"; logical on a CPU
    nnodes: int = Field(1, ge=1)  # machines of the cluster
    master_addr: str | None = None  # the head's address; needed from two machines on
    socket_ifname: str | None = None  # the cluster's network interface; else the one with the route to the head
    listen_everywhere: bool = False  # Ray's servers on every interface, as Ray has it, not on the cluster's alone
    node_addrs: str | None = None  # addresses of all machines, to name those that are missing
    ray_join_seconds: int = Field(600, ge=1)  # how long the machines wait for one another
    node_lost_seconds: int = Field(60, ge=1)  # how long the script has to end by itself when a machine has left
    ray_port: int = Field(29444, ge=1024, le=65535)
    ray_num_cpus: int | None = Field(None, ge=1)  # Ray's own count where not given
    ray_object_store_bytes: int | None = Field(None, ge=80_000_000)  # Ray's own choice where not given
    mindspeed_operators: str = (  # builders in mindspeed.op_builder whose operators are compiled first, or none
        "GMMOpBuilder GMMV2OpBuilder MatmulAddOpBuilder GroupMatmulAddOpBuilder RotaryPositionEmbeddingOpBuilder "
        "RingAttentionUpdateOpBuilder MoeTokenPermuteOpBuilder MoeTokenUnpermuteOpBuilder"
    )
    operator_seconds: int = Field(1800, ge=1)  # for all of them
    run_name: str | None = Field(None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    outputs_dir: str = Field("outputs", min_length=1)

    @field_validator("mindspeed_operators")
    @classmethod
    def _names(cls, value: str) -> str:
        for name in value.split():
            if not name.isidentifier():
                raise ValueError(f"{name!r} is no builder's name")
        return value

    def operators(self) -> list[str]:
        """The builders' names, each once."""
        return list(dict.fromkeys(name for name in self.mindspeed_operators.split() if name != "none"))


def read_settings(env: dict[str, str]) -> Settings:
    """The settings in ``env``. Raises UserError naming the variable and its value."""
    given = {name: env[name.upper()] for name in Settings.model_fields if env.get(name.upper())}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"{str(first['loc'][0]).upper()}={first['input']!r}: {first['msg']}",
            "set it right in the env script, or in the environment if it comes from there",
        ) from None
