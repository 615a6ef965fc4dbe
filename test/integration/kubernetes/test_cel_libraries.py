"""Kubernetes' own functions in rules, each with a value that keeps the rule and one that breaks it."""

import pytest

from homelab_autoscaler.sandbox.status import ApiStatusError

# rule, a value that keeps it, a value that breaks it
RULES = [
    ("self.find('[0-9]+') == '12'", "a12b3", "ab"),
    ("self.findAll('[0-9]+').size() == 2", "a12b3", "a1"),
    ("self.findAll('[0-9]', 1) == ['1']", "12", "21"),
    ("'%s!'.format([self]) == 'a!'", "a", "b"),
    ("[1, int(self)].isSorted()", "2", "0"),
    ("[1, 2, 2].indexOf(int(self)) == 1", "2", "3"),
    ("[1, 2, 2].lastIndexOf(int(self)) == 2", "2", "3"),
    ("self.indexOf('b') == 1", "ab", "b"),
    ("[1, 2, int(self)].sum() == 6", "3", "4"),
    ("[1, 2, int(self)].max() == 3", "3", "1"),
    ("isQuantity(self)", "1Gi", "1 Gi"),
    ("quantity(self).isGreaterThan(quantity('1Gi'))", "2000Mi", "1000Mi"),
    ("quantity(self).isLessThan(quantity('1'))", "500m", "1"),
    ("quantity(self).compareTo(quantity('1000m')) == 0", "1", "2"),
    ("quantity(self) == quantity('1Gi')", "1024Mi", "1G"),
    ("quantity(self).isInteger() && quantity(self).asInteger() == 1000", "1k", "1.5"),
    ("quantity(self).add(quantity('1')).sub(1).isGreaterThan(quantity('0'))", "1m", "-1m"),
    ("isURL(self)", "https://a.example/x", "a.example"),
    ("url(self).getScheme() == 'https'", "https://a", "http://a"),
    ("url(self).getHost() == 'a:80' && url(self).getPort() == '80'", "http://a:80/", "http://a/"),
    ("url(self).getHostname() == '::1'", "http://[::1]:80/", "http://127.0.0.1/"),
    ("url(self).getEscapedPath() == '/x%20y'", "http://a/x%20y", "http://a/x"),
    ("url(self).getQuery()['k'] == ['1', '2']", "http://a/?k=1&k=2", "http://a/?k=1"),
    ("isIP(self)", "::1", "1.2.3"),
    ("ip(self).family() == 6", "::1", "1.2.3.4"),
    ("isCIDR(self)", "10.0.0.0/8", "10.0.0.0"),
    ("cidr('10.0.0.0/8').containsIP(self)", "10.1.2.3", "11.0.0.1"),
    ("cidr(self).prefixLength() == 8", "10.0.0.0/8", "10.0.0.0/9"),
]


@pytest.fixture(scope="module")
def ruled(define):
    properties = {
        f"f{number}": {"type": "string", "maxLength": 30, "x-kubernetes-validations": [{"rule": rule}]}
        for number, (rule, _, _) in enumerate(RULES)
    }
    define("ruleds", "Ruled", {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}})


@pytest.mark.parametrize("number", range(len(RULES)), ids=[rule for rule, _, _ in RULES])
def test_a_rule_tells_a_value_that_keeps_it_from_one_that_breaks_it(api, namespace, ruled, number):
    rule, good, bad = RULES[number]
    path = f"/apis/test.example.dev/v1/namespaces/{namespace}/ruleds"
    frame = {"apiVersion": "test.example.dev/v1", "kind": "Ruled"}
    api.create(path, {**frame, "metadata": {"name": "good"}, "spec": {f"f{number}": good}})
    with pytest.raises(ApiStatusError) as caught:
        api.create(path, {**frame, "metadata": {"name": "bad"}, "spec": {f"f{number}": bad}})
    causes = [(cause["reason"], cause["field"]) for cause in caught.value.status["details"]["causes"]]
    assert causes == [("FieldValueInvalid", f"spec.f{number}")]
    assert f"failed rule: {rule}" in caught.value.status["message"]
