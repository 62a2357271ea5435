"""Settings from flags: what is right is typed, and all that is wrong is told at once."""

import pytest

from kvstack.apiserver.server.addresses import advertised_address
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import NamedPair, Options, StoreOptions, options_of
from kvstack.component.errors import ConfigError
from kvstack.component.flags.command_line import read_command_line

NEEDED = [
    "--etcd-servers=http://127.0.0.1:2379",
    "--service-account-issuer=https://a",
    "--service-account-key-file=a",
    "--service-account-signing-key-file=b",
]


def options(*arguments: str) -> Options:
    return options_of(read_command_line([*NEEDED, *arguments], "kvstack apiserver", TABLE))


def refusal(*arguments: str) -> str:
    with pytest.raises(ConfigError) as caught:
        options(*arguments)
    return str(caught.value)


def test_all_that_is_missing_is_reported_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(read_command_line([], "kvstack apiserver", TABLE))
    assert str(caught.value) == (
        "[--etcd-servers must be specified, service-account-issuer is a required flag, either"
        " `--service-account-key-file` or `--service-account-signing-endpoint` must be set,"
        " --service-account-signing-key-file and --service-account-issuer are required flags]"
    )


def test_values_are_typed() -> None:
    made = options(
        "--etcd-compaction-interval=90s",
        "--history=24h",
        "--event-ttl=2h",
        "--service-cluster-ip-range=10.0.0.0/16,fd00::/108",
        "--service-node-port-range=30000+99",
        "--tls-sni-cert-key=c.crt,c.key:*.example.org,example.org",
        "--tls-min-version=VersionTLS13",
        "--etcd-prefix=other",
        "--shutdown-delay-duration=1500ms",
    )
    assert made.store.compaction_s == 90
    assert made.store.history_s == 86_400
    assert made.store.root == "/other/"
    assert made.event_ttl_s == 7200
    assert [each.cidr for each in made.service_ranges] == ["10.0.0.0/16", "fd00::/108"]
    assert made.node_ports == (30000, 30099)
    assert made.serving.others == (NamedPair("c.crt", "c.key", ("*.example.org", "example.org")),)
    assert made.serving.min_version == "TLS1.3"
    assert made.serving.shutdown_delay_s == 1.5


def test_the_prefix_of_keys_has_a_slash_at_both_ends() -> None:
    assert StoreOptions().root == StoreOptions(prefix="registry/").root == "/registry/"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            ["--secure-port=0"],
            "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with"
            " 0",
        ),
        (["--authorization-mode=Foo"], 'authorization-mode "Foo" is not a valid mode'),
        (
            ["--authorization-mode=Webhook"],
            "authorization-mode Webhook's authorization config file not passed",
        ),
        (
            ["--authorization-mode=RBAC,RBAC"],
            'authorization-mode ["RBAC" "RBAC"] has mode specified more than once',
        ),
        (["--feature-gates=Foo=true"], "unrecognized feature gate: Foo"),
        (
            ["--feature-gates=kube:WatchList=x"],
            "invalid value of WatchList=x, err: not true or false",
        ),
        (
            ["--enable-admission-plugins=Nonsense"],
            'enable-admission-plugins plugin "Nonsense" is unknown',
        ),
        (
            ["--enable-admission-plugins=Priority", "--disable-admission-plugins=Priority"],
            "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
        ),
        (["--max-requests-inflight=-1"], "--max-requests-inflight can not be negative value"),
        (
            ["--etcd-compaction-interval=-1s"],
            "--etcd-compaction-interval can not be negative value",
        ),
        (
            ["--tls-cert-file=x"],
            "--tls-cert-file and --tls-private-key-file must be given together",
        ),
        (
            ["--tls-min-version=VersionTLS10"],
            "--tls-min-version VersionTLS10: must be VersionTLS12 or VersionTLS13",
        ),
        (
            ["--tls-sni-cert-key=x"],
            "expected comma separated certificate and key file paths",
        ),
        (
            ["--service-account-max-token-expiration=1m"],
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        ),
        (
            ["--endpoint-reconciler-type=master-count"],
            '--endpoint-reconciler-type "master-count": lease and none are supported',
        ),
        (
            ["--service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16"],
            "--service-cluster-ip-range and --secondary-service-cluster-ip-range must be of"
            " different IP family",
        ),
        (["--advertise-address=0.0.0.0"], "advertise-address 0.0.0.0 is not reachable for others"),
    ],
)
def test_what_is_wrong_is_reported(arguments: list[str], text: str) -> None:
    assert refusal(*arguments) == text


def test_a_gate_of_upstream_is_accepted() -> None:
    made = options("--feature-gates=kube:WatchList=false,AllBeta=true")
    assert made.flags["feature-gates"] == "kube:WatchList=false,AllBeta=true"


def test_authorization_by_a_file_and_by_flags() -> None:
    made = options("--authorization-config=/c").authorization
    assert made.config_file == "/c"
    told = refusal("--authorization-config=/c", "--authorization-mode=RBAC")
    assert told.startswith("--authorization-config can not be specified when")
    assert refusal("--authorization-policy-file=/p") == (
        "cannot specify --authorization-policy-file without mode ABAC"
    )
    assert 'webhook authorizer version "v2"' in refusal("--authorization-webhook-version=v2")


def test_an_issuer_of_tokens() -> None:
    given = ("--oidc-issuer-url=https://i", "--oidc-client-id=k")
    made = options(*given, "--oidc-required-claim=a=b").authentication.oidc
    assert made is not None
    assert made.username_prefix == "https://i#"
    assert made.required_claims == {"a": "b"}
    for flags, prefix in (
        (("--oidc-username-prefix=-",), ""),
        (("--oidc-username-prefix=x:",), "x:"),
        (("--oidc-username-claim=email",), ""),
    ):
        oidc = options(*given, *flags).authentication.oidc
        assert oidc is not None
        assert oidc.username_prefix == prefix
    assert "must be specified together" in refusal("--oidc-issuer-url=https://i")
    assert "mutually exclusive" in refusal(*given, "--authentication-config=/c")
    assert 'unsupported signing alg: "HS256"' in refusal(*given, "--oidc-signing-algs=HS256")
    assert options().authentication.oidc is None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--cors-allowed-origins=example.com"], "does not pin to start/end of host"),
        (["--cors-allowed-origins=^(a$"], "invalid regular expression"),
        (["--strict-transport-security-directives=forever"], "allowed values: max-age=expireTime"),
        (["--audit-log-format=xml"], "invalid audit log format xml"),
        (["--audit-log-maxage=-1"], "--audit-log-maxage -1 can't be a negative number"),
        (["--audit-log-path=-", "--audit-log-mode=never"], "invalid audit log mode never"),
        (
            ["--audit-log-path=-", "--audit-log-mode=batch", "--audit-log-batch-buffer-size=0"],
            "invalid audit batch log buffer size 0, must be a positive number",
        ),
        (
            ["--audit-webhook-config-file=f", "--audit-webhook-batch-throttle-qps=0"],
            "invalid audit batch webhook throttle QPS 0.0, must be a positive number",
        ),
        (
            [
                "--audit-log-path=-",
                "--audit-log-truncate-enabled",
                "--audit-log-truncate-max-batch-size=1",
            ],
            "invalid audit truncate log max batch size 1, must be greater than max event size",
        ),
        (["--audit-log-version=audit.k8s.io/v1beta1"], "invalid group version"),
        (
            ["--max-requests-inflight=0", "--max-mutating-requests-inflight=0"],
            "must add up to more than 0 with priority and fairness",
        ),
        (["--enable-admission-plugins=EventRateLimit"], "limits: Invalid value: null"),
        (["--admission-control-config-file=/nowhere"], "/nowhere cannot be read"),
    ],
)
def test_what_guards_the_server_is_checked(flags: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(read_command_line([*NEEDED, *flags], "kvstack apiserver", TABLE))
    assert message in str(caught.value)


def test_the_address_for_the_cluster_has_the_family_of_services(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = {4: "192.0.2.1", 6: "2001:db8::1"}
    monkeypatch.setattr("kvstack.apiserver.server.addresses.own_address", own.__getitem__)

    def advertised(*arguments: str) -> str:
        return advertised_address(options(*arguments).serving)

    both, six = (
        f"--service-cluster-ip-range={each}"
        for each in ("10.96.0.0/16,fd00::/112", "fd00::/112,10.96.0.0/16")
    )
    assert advertised("--bind-address=::") == own[4]  # a socket of :: takes both families
    assert advertised("--bind-address=::", both) == own[4]
    assert advertised("--bind-address=::", six) == own[6]
    assert advertised("--bind-address=0.0.0.0", six) == own[4]
    assert advertised("--bind-address=2001:db8::5", both) == "2001:db8::5"
    assert advertised(six, "--advertise-address=2001:db8::9") == "2001:db8::9"
    assert refusal(both, "--advertise-address=2001:db8::9") == (
        "--advertise-address 2001:db8::9: the first range of --service-cluster-ip-range is of IPv4,"
        " and its Service kubernetes needs an address of that family"
    )
