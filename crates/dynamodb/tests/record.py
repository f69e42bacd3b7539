#!/usr/bin/env python3
"""Records what the emulator dynoxide answers to expressions, values and legacy parameters.

    python3 record.py PORT     writes recorded/*.txt and differences.txt beside this script

The emulator is started by hand (`dynoxide --port PORT`); only the standard library is used. Each case is an input of
`key JSON` lines and the answer of the emulator, without the prefix that some operations place before errors. Where the
crate's answer is another one and a rule of DIFFERENCES holds, the case is written to differences.txt: the answer is the
crate's, and the emulator's answer and the reason are its comment. So that this script knows the crate's answers, let
the test write them into the files first, and read the difference of recorded/ before you commit it:

    CETO_REWRITE=1 cargo test -p dynamodb --test recorded; python3 record.py PORT
"""

import http.client
import itertools
import json
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
COUNTED = "1 validation error detected: "
KEY = {"k": {"S": "1"}}

# (file, pattern of the input, pattern of the emulator's answer, reason). Answers that are equal all the same are no
# differences.
SUITE = "dynalite's public suite, which was run against the service, expects this: "
UNKNOWN = "the service's text is not known: "
DIFFERENCES = [
    ("values", '"(NULL|BOOL)":"', "", SUITE + "a text in place of a boolean is false unless it is true"),
    ("values", "", "^Serial", "JSON of a wrong type: the emulator's texts are those of its JSON parser"),
    ("values", "", "numeric value: $|Input collection", SUITE + "numbers that are empty, sets with duplicates"),
    ("conditions", r'"(N|NULL|NS|SS|BS|M)": ', "^ValidationException: (The parameter|Number|One or)|^false$",
     SUITE + "errors of values of placeholders name the key, and operands have checked types"),
    ("conditions", r"(a=:v AND ){150}|(:v,){100}|(NOT ){300}|(a\.){32}", "^false",
     "limits of expressions, which the emulator does not have (developer guide, surprises)"),
    ("conditions", r"(?i)attribute_|begins_with|contains|size|foo|name", "",
     SUITE + "any operands parse; functions, their use, reserved words and operands are checked afterwards"),
    ("conditions", r"\(", "Syntax error|redundant", SUITE + "operands and paths may have parentheses"),
    ("conditions", r"between :n", "N:1.0", "numbers are normalised when they are read"),
    ("conditions", r"between :n|< :n|>= a", "", "only strings, numbers and binaries have an order (the service refuses)"),
    ("conditions", r"a\[0\] = a|= a|<> a|< a|<= t|= a\.b", "", SUITE + "the operands of a comparison are distinct"),
    ("conditions", r'expression "(a=:v)?   |9999999|2147483648', "",
     "clients quote these texts of the service, and positions end at 2147483647"),
    ("conditions", r"a\[ 0 \]", "Syntax error", "white space in brackets does no harm"),
    ("conditions", r"a\[", "Syntax error", UNKNOWN + "the error names the first token that does not fit"),
    ("updates", "UPDATED_|ALL_OLD", "", "the answer has the elements that paths lead to, and nothing of an item that "
                                        "did not exist (surprises, developer guide)"),
    ("updates", "name", "", SUITE + "a reserved word comes before a repeated section"),
    ("updates", "IF_NOT|l, l, l|c\\[1\\]|m\\[0\\]|DELETE a", "", SUITE + "names of functions have one case, operands "
                                                                "are counted after parsing, paths come before both"),
    ("projections", "attributes", "", "AttributesToGet has no placeholders"),
    ("projections", r"(a\.){32}", "^{}$", "limits of paths, which the emulator does not have (surprises)"),
    ("projections", r"\[0\]|\.x", "^{", SUITE + "paths conflict that take one value for a map and for a list"),
    ("projections", "", "^ValidationException", "syntax errors are those of other expressions"),
    ("expected", "", "Invalid comparison operator", "the API model's constraint, as of other parameters"),
    ("filters", "", "Invalid comparison operator", "the API model's constraint, as of other parameters"),
    ("expected", "", "^(true|false)$", SUITE + "each operator takes some types only"),
    ("attribute_updates", "", "Member must satisfy", "the API model's constraint, as of other parameters"),
    ("attribute_updates", "ALL_OLD", "^{\"k", "an item that did not exist has no old attributes"),
]


class Emulator:
    def __init__(self, port):
        self.connection = http.client.HTTPConnection("127.0.0.1", port)
        self.call("DeleteTable", {"TableName": "recorded"})
        self.call("CreateTable", {
            "TableName": "recorded", "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "k", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "k", "KeyType": "HASH"}]})

    def call(self, operation, body):
        body = body if isinstance(body, str) else json.dumps(body)
        self.connection.request("POST", "/", body.encode(), {
            "X-Amz-Target": "DynamoDB_20120810." + operation, "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Date": "20260101T000000Z",
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/dynamodb/aws4_request, "
                             "SignedHeaders=host;x-amz-date;x-amz-target, Signature=abc"})
        response = self.connection.getresponse()
        return response.status, json.loads(response.read())

    def seed(self, item):
        if item is None:
            self.call("DeleteItem", {"TableName": "recorded", "Key": KEY})
        else:
            status, answer = self.call("PutItem", {"TableName": "recorded", "Item": {**item, **KEY}})
            assert status == 200, (item, answer)


def error(answer):
    kind = answer["__type"].split("#")[-1]
    message = answer.get("message", answer.get("Message", ""))
    if message.startswith(COUNTED) and not re.search("Value .* at '|Member must", message):
        message = message[len(COUNTED):]
    return "%s: %s" % (kind, message)


def normal(value):
    """The same value with sets and maps in one order."""
    if isinstance(value, dict):
        return {k: sorted(v, key=set_order(k)) if k in ("SS", "NS", "BS") and isinstance(v, list) else normal(v)
                for k, v in sorted(value.items(), key=lambda entry: entry[0].encode())}
    return [normal(v) for v in value] if isinstance(value, list) else value


def set_order(kind):
    from base64 import b64decode
    from decimal import Decimal
    return {"SS": lambda s: s.encode(), "NS": Decimal, "BS": b64decode}[kind]


def text(value):
    return json.dumps(normal(value), ensure_ascii=False, separators=(",", ":"))


def truth(status, answer):
    if status == 200:
        return "true"
    if answer["__type"].endswith("ConditionalCheckFailedException"):
        return "false"
    return error(answer)


def placeholders(case):
    members = {"names": "ExpressionAttributeNames", "values": "ExpressionAttributeValues"}
    return {member: case[key] for key, member in members.items() if key in case}


def answer_value(emulator, case):
    emulator.seed(None)
    raw = '{"TableName":"recorded","Item":{"k":{"S":"1"},"a":%s}}' % case["value"]
    status, answer = emulator.call("PutItem", raw)
    if status != 200:
        return error(answer)
    return text(emulator.call("GetItem", {"TableName": "recorded", "Key": KEY})[1]["Item"]["a"])


def answer_condition(emulator, case):
    emulator.seed(case["item"])
    body = {"TableName": "recorded", "Key": KEY, "ConditionExpression": case["expression"], **placeholders(case)}
    return truth(*emulator.call("DeleteItem", body))


def answer_update(emulator, case):
    emulator.seed(case["item"])
    body = {"TableName": "recorded", "Key": KEY, "ReturnValues": case.get("returns", "ALL_NEW"), **placeholders(case)}
    if "updates" in case:
        body["AttributeUpdates"] = case["updates"]
    else:
        body["UpdateExpression"] = case["expression"]
    status, answer = emulator.call("UpdateItem", body)
    return text(answer.get("Attributes")) if status == 200 else error(answer)


def answer_projection(emulator, case):
    emulator.seed(case["item"])
    body = {"TableName": "recorded", "Key": KEY, **placeholders(case)}
    if "attributes" in case:
        body["AttributesToGet"] = case["attributes"]
    else:
        body["ProjectionExpression"] = case["expression"]
    status, answer = emulator.call("GetItem", body)
    return text(answer.get("Item")) if status == 200 else error(answer)


def answer_expected(emulator, case):
    emulator.seed(case["item"])
    body = {"TableName": "recorded", "Key": KEY, "Expected": case["expected"]}
    if "operator" in case:
        body["ConditionalOperator"] = case["operator"]
    return truth(*emulator.call("DeleteItem", body))


def answer_filter(emulator, case):
    emulator.seed(case["item"])
    body = {"TableName": "recorded", "ScanFilter": case["filter"]}
    if "operator" in case:
        body["ConditionalOperator"] = case["operator"]
    status, answer = emulator.call("Scan", body)
    return ("true" if answer["Items"] else "false") if status == 200 else error(answer)


def n(number):
    return {"N": str(number)}


def s(string):
    return {"S": string}


def numbers(*all_numbers):
    return {"L": [n(number) for number in all_numbers]}


SMALL = {"a": n(1)}
ITEM = {
    "a": n(1), "s": s("héllo"), "l": numbers(1, 2, 3), "ss": {"SS": ["a", "b"]}, "ns": {"NS": ["1", "2"]},
    "bs": {"BS": ["YQ==", "Yg=="]}, "b": {"B": "YWJj"}, "t": {"BOOL": True}, "n": {"NULL": True}, "e": s(""),
    "m": {"M": {"x": n(1), "y": {"M": {"z": s("q"), "w": s("r")}},
                "l": {"L": [{"M": {"p": s("1"), "q": s("2")}}, s("x")]}}},
    "l2": {"L": [numbers(1, 2), numbers(3, 4)]},
}
ONE_OF_EACH = [n(1), s("a"), {"B": "YQ=="}, {"BOOL": True}, {"NULL": True}, numbers(1), {"M": {}}, {"SS": ["a"]},
               {"NS": ["1"]}, {"BS": ["YQ=="]}]


def value_cases():
    texts = r'''{"S":null} {} {"S":"a","N":"1"} {"X":"y"} {"S":5} {"S":{}} {"S":[]} {"S":true} {"S":false} 5 "a" null []
        {"N":5} {"N":"abc"} {"N":""} {"N":"1e400"} {"N":"1e-400"} {"N":"123456789012345678901234567890123456789"}
        {"N":"NaN"} {"N":"Infinity"} {"N":".5"} {"N":"5."} {"N":"+5"} {"N":"1e+2"} {"N":"1E2"} {"N":"1e"} {"N":"1e+"}
        {"N":"0x1"} {"N":"."} {"N":"-"} {"N":"+-1"} {"N":"1_0"} {"N":"1,5"} {"N":"1.2.3"} {"N":"--1"} {"N":"1e1.5"}
        {"N":"12345678901234567890123456789012345678"} {"N":"-12345678901234567890123456789012345678"}
        {"N":"0.00001234567890123456789012345678901234567800"} {"N":"1234567890123456789012345678901234567800"}
        {"N":"12345678901234567890123456789012345678e88"} {"N":"12345678901234567890123456789012345678e89"}
        {"N":"1e125"} {"N":"-1e125"} {"N":"1e126"} {"N":"-1e126"} {"N":"10e125"} {"N":"0.1e126"} {"N":"1e-130"}
        {"N":"1e-131"} {"N":"-1e-131"} {"N":"10e-131"} {"N":"0.1e-130"} {"N":"1.5e-130"} {"N":"-0"} {"N":"0.0"}
        {"N":"0e10"} {"N":"0001"} {"N":"000"} {"N":"1.000"} {"N":"1.10"} {"N":"100"} {"N":"-1.5e3"}
        {"N":"9.9999999999999999999999999999999999999E+125"} {"N":"9.99999999999999999999999999999999999999E+125"}
        {"N":"123.456"} {"N":"-0.001"} {"N":"1e0"} {"N":"1e-0"} {"N":"1e00005"} {"N":"18446744073709551616"}
        {"N":"9223372036854775807"} {"N":"99999999999999999999999999999999999999"} {"N":"٣"} {"N":"１"}
        {"B":"YQ="} {"B":"YQ"} {"B":"-_8="} {"B":"YR=="} {"B":5} {"B":"YQ=="} {"B":"YWI="} {"B":"YWJj"} {"B":"/+8="}
        {"B":"Y=Q="} {"B":"===="} {"B":""}
        {"BOOL":"true"} {"BOOL":"false"} {"BOOL":true} {"BOOL":false} {"BOOL":1} {"BOOL":[]} {"BOOL":{}} {"BOOL":"x"}
        {"NULL":true} {"NULL":false} {"NULL":"true"} {"NULL":"no"} {"NULL":null}
        {"L":{}} {"L":"a"} {"L":null} {"L":[]} {"L":[null]} {"L":[{}]} {"L":[{"N":"x"}]} {"L":[{"S":"a"},{"N":"1"}]}
        {"M":[]} {"M":"a"} {"M":{}} {"M":{"a":null}} {"M":{"a":{}}} {"M":{"":{"S":"x"}}} {"M":{"a":{"M":{"b":{"N":"1"}}}}}
        {"SS":[]} {"NS":[]} {"BS":[]} {"SS":["a","a"]} {"SS":["a","b","a"]} {"NS":["1","1.0"]} {"NS":["1","1"]}
        {"BS":["Yg==","Yg=="]} {"SS":[1]} {"NS":[1]} {"SS":"a"} {"SS":{}} {"SS":[null]} {"SS":[""]} {"BS":[""]}
        {"NS":["a"]} {"NS":[""]} {"BS":["a"]} {"S":""} {"SS":["b","a","c"]} {"NS":["3","-1","2e0","0"]}
        {"BS":["YWI=","YQ=="]} {"S":"a","S":"b"} {"L":[],"M":{}} {"s":"a"} {"S":"héllo\n\u0000\"\\"} {"S":"😀"}
        {"S":"\ud83d\ude00"} {"S":"a","X":{"Y":[1,2]}} {"N":"1","S":null}'''
    cases = [{"value": value} for value in re.split(r"(?<=[}\]l\"5])\s+(?=[{\[5\"n])", texts)]
    cases += [{"value": value} for value in ('{"N":" 1"}', '{"N":"1 "}', '{"B":"a b="}', '{"B":"YQ==\\n"}')]
    for depth in (31, 32, 33, 40):
        cases.append({"value": '{"L":[' * depth + '{"N":"1"}' + "]}" * depth})
        cases.append({"value": '{"M":{"a":' * depth + '{"N":"1"}' + "}}" * depth})
    return cases


SYNTAX = '''
a|a =|a = :v|a == :v|a = :v AND|a = :v b|= :v|(a = :v|a = :v)|((a = :v))|(a = :v)|(a) = :v|a = (:v)|NOT a = :v
NOT (a = :v)|NOT NOT a = :v|not a=:v and not (a=:v) OR a=:v|a <> :v|a != :v|a > :v|a < > :v|a >= :v|a <= :v|a => :v
a BETWEEN :v AND :v|a BETWEEN :v|a between :v and|a IN (:v)|a IN ()|a IN :v|a in (:v, :v)|a in (:v,)|a in (,:v)
attribute_exists(a)|attribute_exists (a) AND a=:v|attribute_exists(:v)|attribute_exists()|attribute_exists(a,b) AND a=:v
Attribute_Exists(a) AND a=:v|foo(a) AND a=:v|size(a) > :v|size(a)|size(a) = size(b) AND a=:v|size(size(a)) = :v
begins_with(a, :v)|begins_with(:v, a)|begins_with(a)|begins_with(:v,:v)|contains(a, :v)|contains (a , :v)
contains(:v, a)|contains(a, size(a)) AND a=:v|attribute_type(a, :v)|attribute_type(a, b) AND a=:v|a = b AND a=:v
a = a AND a=:v|:v = :v|:v = a|a.b = :v|a[0] = :v|a[0][1].b = :v|a[ 0 ] = :v|a[-1] = :v|a[x] = :v|a[:v] = :v
a. b = :v|a .b = :v|a..b = :v|.a = :v|a. = :v|a[] = :v|a[0 = :v|a[99999999999999999999] = :v|a[2147483648]=:v
a[01]=:v|1a = :v|_a = :v|a_ = :v|a-b = :v|"a" = :v|'a' = :v|é = :v|a = :|a = :1|a = :_|a = :v-x|a=:v;|a = @x|# = :v
#a = :v|#1 = :v|name = :v|NAME = :v|select = :v|size = :v|and = :v|a and :v|begins_with = :v|contains = :v
attribute_exists = :v|a=:v OR OR a=:v|a = :v AND AND|a = 5|a = "x"|a= :v , b = :v|a = :v, |set a = :v|size(:v) > :v
a IN (b, :v)|a IN (size(b), :v)|a BETWEEN size(a) AND :v|NOT (NOT (a=:v))|NOT ((a=:v))|(a=:v AND b=:v)
((a=:v) AND b=:v)|(a=:v) AND (b=:v)|((a=:v) AND (b=:v))|(((a=:v) AND (b=:v)))|attribute_exists((a)) AND a=:v
attribute_exists(a[0].b) and a=:v|a = :v AND b = :w|a=:V|a ( :v )|a[0]b = :v|a[0].[1]=:v|k.a[1]  [2]  . c = :v
a[1.5]=:v|a.1=:v|a.#b=:v|name = :v AND|#a = :v AND|:w = a AND|#a = :w|name = :w|name = #a|a = :v AND name = #a|foo(#a)
foo(a|foo(name) AND|set = :v|remove = :v|add = :v|delete=:v|SIZE(a) = :v|attribute_exists(name) AND|a = :v AND :w
if_not_exists(a, :v) = :v|list_append(a,:v) = :v|if_not_exists(a,:v)|a.name = :v|a.size = :v|a[0].and = :v|a.AND
begins_with(a,:v) = :v|(a) AND a=:v|(attribute_exists(a)) AND a=:v|a between :v and :v and a=:v|a in (:v) or a in (:v)
not a in (:v)|a not in (:v)|a = not :v|size(a) in (:v)|size(a) between :v and :v|contains(a,b,c)|begins_with(a,:v
begins_with a, :v)|begins_with((a),:v)|attribute_type(a,:v|(a=:v)(b=:v)|()|a = ()|NOT|NOT AND|a=:v NOT b=:v|  |a b
things are not gonna be ok|a > 4|attribute_exists(a-b)|attribute_exists(a..b)|attribute_exists(Pi#x.y)|a in b, c
a > between|(a)between(b.c)and((c)|#$.b > a|a > :v.x|b[:v] > a|b[#x] > a|size(a).b > :v|(size(a))[0] > :v|a=((:v))
(a)between(:v)and(:v)|((a.b).c) = :v|(a.b).c = :v|a = :v or (b = :v and (c = :v or (d = :v)))|a=:v AND(b=:v)
attribute_exists(a)AND(b=:v)|NOT(a=:v)|a IN(:v)|a.b.c.d[3].e = :v|a=:v OR NOT b=:v AND c=:v|(NOT a=:v)|a <>:v|a<>:v
a<:v|a>=:v AND a<=:v|a,b|:v|(:v)|begins_with(a,:v) AND|contains(a,:v)contains(a,:v)|a = :v = :v|a < b < :v
'''


def condition_cases():
    for expression in itertools.chain(*(line.split("|") for line in SYNTAX.strip("\n").split("\n"))):
        yield {"item": SMALL, "expression": expression, "values": {":v": s("x")}}
    for expression in ("", "a=:v\nAND\ta=:v\r\n", "a=:v\x00", "a=\u00a0:v", " " * 4097, "a=:v" + " " * 4093):
        yield {"item": SMALL, "expression": expression, "values": {":v": s("x")}}
    repeated = ["a IN (%s)" % ",".join([":v"] * 100), " AND ".join(["a=:v"] * 150), "NOT " * 299 + "a=:v",
                "NOT(" * 200 + "a=:v" + ")" * 200, "(" * 500 + "a=:v" + ")" * 500, ".".join(["a"] * 32) + "=:v",
                "a" + "[0]" * 31 + "=:v", "a IN (%s)" % ",".join([":v"] * 101), " AND ".join(["a=:v"] * 151),
                ".".join(["a"] * 33) + "=:v", "NOT " * 300 + "a=:v"]
    for expression in repeated:
        yield {"item": SMALL, "expression": expression, "values": {":v": s("x")}}
    yield from placeholder_cases()
    yield from operand_cases()
    yield from evaluation_cases()


def placeholder_cases():
    one = {":v": s("x")}
    for names in ({"#a": "x"}, {}, {"a": "x"}, {"#a": ""}, {"#b": "x", "#a": "y"}):
        yield {"item": SMALL, "expression": "a = :v", "names": names, "values": one}
    for expression, names in [("#a=:v", {"#a": "a"}), ("#a=:v", {"#a": "name"}), ("#a=:v", {"#a": "x.y"}),
                              ("#a=:v AND #b=:v", {"#a": "a", "#b": "a"}), ("#a=:v AND #a=:v", {"#a": "a"}),
                              ("a.#b = :v", {"#b": "x"}), ("#a=:v AND :y=:w", {"#x": "x"}),
                              (":y=:w AND #a=:v", {"#x": "x"}), ("#a = a AND a=:v", {"#a": "a"}),
                              ("#A=:v", {"#a": "a"}), ("#a[0].#a = :v", {"#a": "a"}), ("a=:v AND foo", {"#a": "x"})]:
        yield {"item": SMALL, "expression": expression, "names": names, "values": one}
    for values in ({}, {"v": s("x")}, {":v": s("x"), ":w": s("y"), ":u": s("z")}, {":w": s("x")}, {":V": s("x")}):
        yield {"item": SMALL, "expression": "a = :v", "values": values}
    for value in ({"SS": []}, {"NS": []}, {"BS": []}, {}, {"N": "x"}, {"N": ""}, {"N": "1e999"}, {"NULL": False},
                  {"S": "a", "N": "1"}, {"NS": ["1", "1"]}, {"SS": ["a", "a"]}, {"BS": ["YQ==", "YQ=="]},
                  {"L": [{}]}, {"M": {"a": {"SS": []}}}):
        yield {"item": SMALL, "expression": "a = :v", "values": {":v": value}}
    yield {"item": SMALL, "expression": "attribute_exists(a)"}
    yield {"item": SMALL, "expression": "#a = :v"}


def operand_cases():
    for value in ONE_OF_EACH:
        for expression in ("begins_with(a,:n)", "begins_with(:n,a)", "size(:n) > :m", "attribute_type(a,:n)", "a < :n",
                           "a = :n", "a between :n and :n", "contains(a,:n)", "contains(:n,a)", "a IN (:n)",
                           ":n >= a", "a <> :n", "attribute_not_exists(size(:n))"):
            values = {":n": value, **({":m": n(0)} if ":m" in expression else {})}
            yield {"item": SMALL, "expression": expression, "values": values}
    for name in ("S", "N", "B", "BOOL", "NULL", "L", "M", "SS", "NS", "BS", "X", "s", ""):
        yield {"item": SMALL, "expression": "attribute_type(a,:n)", "values": {":n": s(name)}}
    for low, high in ((s("1"), n(1)), (s("2"), s("1")), (n(2), n(1)), (n(1), n(1)), ({"B": "Yg=="}, {"B": "YQ=="}),
                      (n(1), n(2)), (n("1.0"), n("0.50"))):
        yield {"item": SMALL, "expression": "a between :n and :m", "values": {":n": low, ":m": high}}
    for expression in ("contains(a,a)", "a = a", "a.b = a.b", "a < a", "a between a and b", "a.b = a.c", "a in (a)",
                       "begins_with(a,a)", "begins_with(a,size(a))", "attribute_exists(size(a))", "a <> a",
                       "attribute_type(a,a)", "a[0] = a[0]", "a[0] = a[1]", "a = b", "size(a) = size(a)"):
        yield {"item": SMALL, "expression": expression}
    yield {"item": SMALL, "expression": "contains(:n,:n)", "values": {":n": n(1)}}


def evaluation_cases():
    v = [("size(s) = :v", n(5)), ("size(s) = :v", n(6)), ("size(b)=:v", n(3)), ("size(l)=:v", n(3)), ("size(m)=:v", n(3)),
         ("size(ss)=:v", n(2)), ("size(a)=:v", n(1)), ("size(t)=:v", n(1)), ("size(n)=:v", n(1)), ("size(e)=:v", n(0)),
         ("size(a) <> :v", n(1)), ("size(nope)<>:v", n(1)), ("nope <> :v", n(1)), ("nope < :v", n(1)),
         ("nope = :v", n(1)), ("a = :v", n("1.0")), ("a = :v", s("1")), ("a <> :v", s("1")), ("a < :v", s("1")),
         ("ss = :v", {"SS": ["b", "a"]}), ("ss = :v", {"SS": ["a"]}), ("ns=:v", {"NS": ["2.0", "1e0"]}),
         ("bs = :v", {"BS": ["Yg==", "YQ=="]}), ("l=:v", numbers(1, 2, 3)), ("l=:v", numbers(1, 3, 2)),
         ("l=:v", numbers(1, 2)), ("m.y = :v", {"M": {"w": s("r"), "z": s("q")}}), ("m.y = :v", {"M": {"w": s("r")}}),
         ("contains(s,:v)", s("llo")), ("contains(s,:v)", s("")), ("contains(s,:v)", s("hel")),
         ("contains(ss,:v)", s("a")), ("contains(ss,:v)", s("ab")), ("contains(ns,:v)", n("1.0")),
         ("contains(l,:v)", n(2)), ("contains(l,:v)", s("2")), ("contains(l2,:v)", numbers(1, 2)),
         ("contains(ss,:v)", {"SS": ["a"]}), ("contains(m,:v)", s("x")), ("contains(b,:v)", {"B": "Yg=="}),
         ("contains(bs,:v)", {"B": "Yg=="}), ("contains(a,:v)", n(1)), ("contains(s,:v)", n(1)),
         ("begins_with(s,:v)", s("h")), ("begins_with(s,:v)", s("e")), ("begins_with(s,:v)", s("")),
         ("begins_with(b,:v)", {"B": "YQ=="}), ("begins_with(a,:v)", s("1")), ("begins_with(s,:v)", {"B": "YQ=="}),
         ("attribute_type(m.y,:v)", s("M")), ("attribute_type(nope,:v)", s("NULL")), ("attribute_type(n,:v)", s("NULL")),
         ("l[0] = :v", n(1)), ("l[3] = :v", n(1)), ("m.y.z = :v", s("q")), ("m.l[0].q = :v", s("2")),
         ("l2[1][0] = :v", n(3)), ("t=:v", {"BOOL": True}), ("t=:v", {"BOOL": False}), ("n=:v", {"NULL": True}),
         ("m.x = a and a=:v", n(1)), ("a = l[0] AND a=:v", n(1)), ("attribute_exists(m.y.z) and a=:v", n(1)),
         ("attribute_not_exists(m.y.zz) and a=:v", n(1)), ("attribute_exists(l[3]) and a=:v", n(1)),
         ("attribute_not_exists(a.b) and a=:v", n(1)), ("attribute_exists(l.x) or a=:v", n(2)),
         ("a=:v or nope=:v", n(1)), ("not nope=:v", n(1)), ("not (a=:v and nope=:v)", n(1)),
         ("a = :v and nope = :v or a=:v", n(1)), ("a = :v or nope = :v and nope=:v", n(1)), ("nope in (:v)", n(1)),
         ("not nope in (:v)", n(1)), ("not nope between :v and :v", n(1)), ("s < :v", s("i")), ("s < :v", s("h")),
         ("s > :v", s("hé")), ("b < :v", {"B": "YWJk"}), ("b >= :v", {"B": "YWJj"}), ("a <= :v", n("0.99")),
         ("a >= :v", n("0.99")), ("a between :v and a", n(0)), ("t < m.y and a=:v", n(1)), ("t <= t and a=:v", n(1)),
         ("contains(:v, s)", s("xhélloy")), ("begins_with(:v, s)", s("hélloy")), ("contains(:v, a)", {"NS": ["1"]}),
         ("contains(:v,a)", numbers(1)), ("size(:v) > a", s("abc")), ("s=:v", s("he\u0301llo")),
         ("nope = nope2 and a=:v", n(1)), ("nope <> nope2 and a=:v", n(1)), ("a = nope or a = :v", n(2)),
         ("a in (nope, :v)", n(1)), ("a in (m.x, :v)", n(7)), ("contains(e,:v)", s("")), ("k = :v", s("1")),
         ("k.x = :v", s("1")), ("size(l) > size(ss) and a = :v", n(1)), ("size(a) = size(l) or a=:v", n(2))]
    for expression, value in v:
        yield {"item": ITEM, "expression": expression, "values": {":v": value}}
    for expression in ("attribute_exists(a)", "attribute_not_exists(a)", "attribute_not_exists(k)", "a <> b", "a = b",
                       "NOT a = b", "size(a) > b", "begins_with(a, b)"):
        yield {"item": None, "expression": expression}


UPDATES = '''
whatever|set a|add a|delete a|set a=set|remove a = b|add a = b|delete a = b|delete a b|add a b|remove a b|set a b
set a = b + c + d|set a = (b + c)|set a = (b) + c|set a = ((a))|set a=a|set (a) = :v|set a = (b.c).d + e|set a[1] = 1
SET a = :v SET b = :v|SET a=:v, |SET|SET a = :v REMOVE|REMOVE b SET a = :v ADD c :v|set a = :v remove|set :v = a
SET a = foo(:v)|SET a = size(l)|SET a = attribute_exists(l)|SET a = if_not_exists(b)|SET a = if_not_exists(:v, b)
SET a = list_append(l)|SET a = list_append(l, l, l)|SET a = :v, a = :v|SET m.x = :v, m = :v|SET m.x = :v, m[0] = :v
REMOVE a, a|ADD a :v DELETE a :v|SET a = :v b = :v|SET a = :v,, b=:v|SET a :v|SET a = :v)|   SET a = :v  |  |a = :v
SET #x = :v|SET a = :w|SET a = :v SET name = :w|SET name = :v|SET a.name = :v|REMOVE size|SET a = if_not_exists(a, :v) + :v
SET a = if_not_exists(a, if_not_exists(b, :v))|SET a = if_not_exists(nope, if_not_exists(b, :v))|SET a=a+:v|SET a=a-:v
SET a= :v-a|SET a = a +:v, l[0]=a|SET a=-:v|SET A = :v|SeT a = :v ReMoVe l|SET a = IF_NOT_EXISTS(b, :v)
SET a = :v AND b = :v|ADD a :v, z :v|SET a = a + a|SET a = l[0] + l[1]|SET z = nope|SET z = nope + :v|SET z.y = :v
SET m.z.y = :v|SET a.x = :v|SET l[5] = :v|SET l.x = :v|SET m[0] = :v|REMOVE l[0]|REMOVE l[9]|REMOVE m.x|REMOVE m.q
REMOVE nope.x|REMOVE a.x|REMOVE nope|REMOVE l[0], l[1]|REMOVE l[1], l[0]|REMOVE l[0], l[2]|SET l[1] = :v REMOVE l[0]
SET l[3]=:v, l[7]=:v, l[5]=a|SET l = list_append(l, l)|SET l = list_append(a, l)|SET l=list_append(nope, l)
SET l=list_append(l, if_not_exists(nope, l))|SET l=list_append(list_append(l, l), l)|ADD m.x :v|ADD m.z :v|ADD l[0] :v
ADD l[9] :v|ADD a :v|ADD ss :v|ADD m :v|ADD nope.x :v|DELETE nope.x :v|SET a = m.y + :v|SET a = ss + :v|SET a[0] = :v
SET z[0] = :v|SET l[0][0] = :v|SET a = l, l = a|SET m.x = a, a = m.x|SET z = m.y, m.y = a|SET z = (:v)|SET z = ((a)+(:v))
SET z = :v + :v|SET z = :v - :v|SET z = if_not_exists(m.y.z, :v)|SET m.y.new = :v|SET m.l[0].p = :v REMOVE m.l[1]
REMOVE l2[0], l2[1][0]|REMOVE l2[1], l2[0][1]|SET l2[0][5] = :v REMOVE l2[1]|SET z = l2[1][1]|ADD z :v SET y = z
set d[1] = a, d.b = a, c[1].a = a, c = if_not_exists(a)|remove c set c = d|remove c, c.a|set c = a, c.b.d = a|SET a = :v +
SET a = :v REMOVE b,|ADD a :v REMOVE b SET c = :v DELETE d :v|set b = list_append(:v, a), c = if_not_exists(a) add a.b :v
SET a = list_append(:v, l)|SET a = if_not_exists(if_not_exists(a, b), l)|SET a = l + :v|SET l = l + l|SET z = b[0]|REMOVE k[0
'''


def update_cases():
    for expression in itertools.chain(*(line.split("|") for line in UPDATES.strip("\n").split("\n"))):
        yield {"item": ITEM, "expression": expression, **({"values": {":v": n(5)}} if ":v" in expression else {})}
    for expression in ("", "SET a = :v\n", "ADD a :v\nREMOVE s\nSET z = :v\n", "\nset a=:v\r\n,z=:v"):
        yield {"item": ITEM, "expression": expression, **({"values": {":v": n(5)}} if ":v" in expression else {})}
    small = {"a": n(1), "ss": {"SS": ["a", "b"]}, "ns": {"NS": ["1", "2"]}, "bs": {"BS": ["YQ==", "Yg=="]},
             "l": numbers(1), "m": {"M": {"s": {"SS": ["a"]}}}, "ls": {"L": [{"SS": ["a"]}, n(2)]}}
    for value in ONE_OF_EACH + [{"SS": ["a", "b"]}, {"SS": ["c", "a"]}, {"NS": ["3"]}]:
        for expression in ("ADD ss :x", "DELETE ss :x", "ADD ns :x", "DELETE ns :x", "ADD bs :x", "DELETE bs :x",
                           "ADD z :x", "DELETE z :x", "SET a = a + :x", "SET a = :x - a", "SET l = list_append(l, :x)",
                           "DELETE m :x", "ADD a :x", "SET z = :x", "DELETE m.s :x", "DELETE ls[0] :x"):
            yield {"item": small, "expression": expression, "values": {":x": value}}
    yield from return_cases()
    for a, b in (("1e125", "9e125"), ("9" * 38, "1"), ("1", "1e-38"), ("1e-130", "1e-130"), ("1e125", "1"),
                 ("9" * 38, "2"), ("1", "-1"), ("5e-130", "-4e-130"), ("9" * 38, "0.1"), ("1e38", "-1"), ("1e39", "-1"),
                 ("0.1", "0.2"), ("-9.5e125", "9.5e125"), ("1.5e-130", "1e-130"), ("0", "1e-130"), ("-1e125", "9e125")):
        for expression in ("SET a = a + :x", "SET a = a - :x", "ADD a :x"):
            yield {"item": {"a": n(a)}, "expression": expression, "values": {":x": n(b)}}


def return_cases():
    given = {":v": n(5), ":s": {"SS": ["a"]}, ":q": {"SS": ["a", "b"]}}
    item = {"a": n(1), "l": numbers(1, 2, 3), "m": {"M": {"x": n(1), "y": s("q")}}, "ss": {"SS": ["a", "b"]}}
    expressions = ["SET a = :v", "SET z = :v", "SET m.x = :v", "SET m.z = :v", "SET l[0] = :v", "SET l[9] = :v",
                   "REMOVE l[0]", "REMOVE l[2]", "REMOVE l[0], l[1]", "REMOVE a", "REMOVE m.x", "REMOVE nope",
                   "SET l[0] = :v, l[2] = :v", "SET m.x = :v, m.y = :v", "DELETE ss :s", "SET l[1] = :v REMOVE l[0]",
                   "SET a = :v, l[1]=:v, m.x=:v", "ADD m.x :v", "SET l[9] = :v, l[10]=:v", "REMOVE m.x, m.y",
                   "DELETE ss :q", "ADD ss :s", "DELETE z :s", "REMOVE l[9]", "SET a = a", "REMOVE m.x SET a = :v"]
    for returns in ("NONE", "ALL_OLD", "UPDATED_OLD", "ALL_NEW", "UPDATED_NEW"):
        for expression in expressions:
            values = {key: value for key, value in given.items() if key in expression}
            yield {"item": item, "expression": expression, "returns": returns, **({"values": values} if values else {})}
        for expression in ("SET a = :v", "REMOVE a", "ADD a :v", "DELETE z :s", "SET z = nope", "SET z = if_not_exists(k, :v)",
                           "SET z = k", "SET l[0] = :v"):
            values = {key: value for key, value in given.items() if key in expression}
            yield {"item": None, "expression": expression, "returns": returns, **({"values": values} if values else {})}


PROJECTIONS = '''
a|a,b|a , m.x|m.x,m.y.z|m.y.z,m.x|l[0]|l[2],l[0]|l[9]|l[0],l[1],l[2]|m.l[0].p|m.l[0].p,m.l[0].q|m.l[1],m.l[0].q
l2[1][0]|l2[1][0],l2[0][1]|l2[0],l2[1][1]|a.x|m.nope|nope|nope.x|l[0].x|m[0]|a,a|m,m.x|m.x,m[0]|l[0],l.x|m.x,m.x|  |a,|a b
,a|name|a,#x|m.y|k|a[0|size(a)|:v|a=b|l[1],l[1]|ss[0]|m.y.z,m.y.w|A|b[1], b.a, a.b, a|a, a[1]|a,b,c,d,e|m.l|m.l[1]
m.y.w,a,m.x,l[1],m.y.z|l2[1],l2[0]|a,,b|(a)|a AND b|a.|a[|l[0]l[1]|l [0]|m . x|m.nope,m.x|l[5],l[1]|m.l[5].p,m.x|t,n,e,bs
'''


def projection_cases():
    for expression in itertools.chain(*(line.split("|") for line in PROJECTIONS.strip("\n").split("\n"))):
        yield {"item": ITEM, "expression": expression}
    for expression, names in [("#x,#y", {"#x": "a", "#y": "a"}), ("#x,a", {"#x": "a", "#y": "b"}), ("a", {"#y": "b"}),
                              ("#x", {"#x": "a"}), ("#x.#y", {"#x": "m", "#y": "x"}), ("#x", {"#x": "m.x"}),
                              ("#x[0]", {"#x": "l"}), ("#x.y.z, #x.x", {"#x": "m"}), ("#x, #z", {"#x": "a"})]:
        yield {"item": ITEM, "expression": expression, "names": names}
    yield {"item": ITEM, "expression": ""}
    yield {"item": ITEM, "expression": "\na\n,\nb\n"}
    yield {"item": ITEM, "expression": ".".join(["a"] * 33)}
    for attributes in (["a"], ["a", "a"], ["a", "b"], [""], ["m.x"], ["nope"], ["b", "a", "b"], ["#x", ":v"]):
        yield {"item": ITEM, "attributes": attributes}


OPERATORS = ["EQ", "NE", "LE", "LT", "GE", "GT", "CONTAINS", "NOT_CONTAINS", "BEGINS_WITH", "IN", "BETWEEN", "NULL",
             "NOT_NULL"]
LEGACY = {"a": n(1), "s": s("abc"), "l": numbers(1, 2, 3), "ss": {"SS": ["a", "b"]}, "b": {"B": "YWJj"},
          "n": {"NULL": True}, "ns": {"NS": ["1", "2"]}}


def entry(operator, *values):
    return {"ComparisonOperator": operator, "AttributeValueList": list(values)}


def expected_cases():
    one = n(1)
    for members in ({}, {"Value": one}, {"Value": n(2)}, {"Exists": True}, {"Exists": False}, {"Exists": True, "Value": one},
                    {"Exists": False, "Value": one}, {"Value": one, "AttributeValueList": [one]},
                    {"Value": one, "ComparisonOperator": "EQ"}, {"Value": n(2), "ComparisonOperator": "LT"},
                    {"AttributeValueList": [one]}, {"Exists": True, **entry("EQ", one)}, {"ComparisonOperator": "EQ"},
                    {"ComparisonOperator": "NULL"}, {"ComparisonOperator": "NOT_NULL"}, {"Value": one, "ComparisonOperator": "NULL"},
                    entry("XX", one), entry("eq", one), entry("EQ", one, n(2)), {"ComparisonOperator": "IN"}):
        yield {"item": LEGACY, "expected": {"a": members}}
        yield {"item": LEGACY, "expected": {"nope": members}}
    for operator in OPERATORS:
        for values in [[]] + [[value] for value in ONE_OF_EACH] + [[s("a"), s("b")], [n(1), s("a")], [s("b"), s("a")],
                                                                  [n(0), n(3)], [n(3), n(0)], [s("a"), s("b"), s("c")]]:
            yield {"item": LEGACY, "expected": {"a": entry(operator, *values)}}
        for name, value in (("s", s("ab")), ("s", s("abd")), ("ss", s("a")), ("ss", {"SS": ["b", "a"]}), ("ns", n(2)),
                            ("l", n(2)), ("l", numbers(1, 2, 3)), ("b", {"B": "YQ=="}), ("n", {"NULL": True}), ("nope", n(1))):
            yield {"item": LEGACY, "expected": {name: entry(operator, value)}}
    both = {"a": entry("EQ", n(1)), "s": entry("EQ", s("x"))}
    for operator in ("AND", "OR"):
        yield {"item": LEGACY, "expected": both, "operator": operator}
        yield {"item": LEGACY, "expected": {"a": entry("EQ", n(1))}, "operator": operator}
    yield {"item": LEGACY, "expected": both}
    yield {"item": LEGACY, "expected": {"a": {"Value": n(1)}, "#s": {"Exists": False}}}
    yield {"item": None, "expected": {"a": {"Exists": False}}}
    yield {"item": None, "expected": {"a": entry("NE", n(1))}}


def filter_cases():
    for members in ({}, {"ComparisonOperator": "EQ"}, entry("EQ", n(1)), entry("NE", n(2)), {"AttributeValueList": [n(2)]},
                    entry("IN", n(2), n(1)), entry("NOT_NULL"), {"ComparisonOperator": "NULL"}, entry("XX"),
                    entry("BETWEEN", n(0), n(2)), entry("BETWEEN", n(0)), entry("GT", n(1))):
        yield {"item": LEGACY, "filter": {"a": members}}
    yield {"item": LEGACY, "filter": {"a": entry("GT", n(1)), "s": entry("EQ", s("abc"))}, "operator": "OR"}
    yield {"item": LEGACY, "filter": {"a": entry("GT", n(1)), "s": entry("EQ", s("abc"))}}
    yield {"item": LEGACY, "filter": {"a": entry("EQ", n(1))}, "operator": "AND"}


def attribute_update_cases():
    for members in ({}, {"Value": n(5)}, {"Action": "PUT"}, {"Action": "DELETE"}, {"Action": "ADD"},
                    {"Action": "XX", "Value": n(1)}, {"Action": "put", "Value": n(1)}, {"Action": "PUT", "Value": numbers(1)}):
        yield {"item": LEGACY, "updates": {"a": members}}
        yield {"item": None, "updates": {"a": members}}
    for name in ("a", "s", "ss", "ns", "l", "nope", "b"):
        for action in ("ADD", "DELETE"):
            for value in ONE_OF_EACH:
                if name in ("a", "ss", "nope") or value.keys() & {"N", "SS", "NS", "BS", "L"}:
                    yield {"item": LEGACY, "updates": {name: {"Action": action, "Value": value}}}
    for value in ({"SS": ["a"]}, {"L": [n(1)]}, n(1)):
        yield {"item": None, "updates": {"a": {"Action": "ADD", "Value": value}}}
    for returns in ("NONE", "ALL_OLD", "UPDATED_OLD", "UPDATED_NEW"):
        yield {"item": LEGACY, "updates": {"a": {"Value": n(5)}, "s": {"Action": "DELETE"}}, "returns": returns}
        yield {"item": None, "updates": {"a": {"Value": n(5)}, "s": {"Action": "DELETE"}}, "returns": returns}
    yield {"item": LEGACY, "updates": {"ss": {"Action": "DELETE", "Value": {"SS": ["a", "b"]}}}, "returns": "UPDATED_NEW"}
    yield {"item": LEGACY, "updates": {"m.x": {"Value": n(5)}, "#a": {"Value": n(6)}}, "returns": "UPDATED_NEW"}


FILES = {
    "values": ("value", value_cases, answer_value),
    "conditions": ("condition", condition_cases, answer_condition),
    "updates": ("update", update_cases, answer_update),
    "projections": ("projection", projection_cases, answer_projection),
    "expected": ("expected", expected_cases, answer_expected),
    "filters": ("filter", filter_cases, answer_filter),
    "attribute_updates": ("update", attribute_update_cases, answer_update),
}


def written(command, case):
    lines = [command]
    for key, value in case.items():
        lines.append(key + " " + (value if key == "value" else json.dumps(value, ensure_ascii=False)))
    return "\n".join(lines)


def difference(name, written_case, answer):
    for file, pattern, answered, reason in DIFFERENCES:
        if file in (name, "*") and re.search(pattern, written_case, re.M) and re.search(answered, answer):
            return reason
    return None


def answers(path):
    """The answers of a suite by their inputs: this crate's, if its tests pass."""
    found = {}
    if os.path.exists(path):
        for block in open(path, encoding="utf-8", newline="\n").read().split("\n\n"):
            given, _, answer = block.partition("\n----\n")
            given = "\n".join(line for line in given.split("\n") if not line.startswith("#"))
            found[given] = answer.rstrip("\n")
    return found


def main():
    emulator = Emulator(int(sys.argv[1]))
    path = os.path.join(HERE, "differences.txt")
    known = {}
    for file in [path] + [os.path.join(HERE, "recorded", name + ".txt") for name in FILES]:
        known.update(answers(file))
    differences, count, seen = [], 0, set()
    for name, (command, cases, answer_case) in FILES.items():
        blocks = []
        for case in cases():
            given = written(command, case)
            if given in seen:
                continue
            seen.add(given)
            answer = answer_case(emulator, case)
            reason = difference(name, given, answer)
            if reason and known.get(given) != answer:
                comment = "# dynoxide: %s\n# %s" % (answer.replace("\n", "\\n"), reason)
                differences.append("%s\n%s\n----\n%s\n" % (comment, given, known.get(given, "")))
            else:
                blocks.append("%s\n----\n%s\n" % (given, answer))
        count += len(blocks)
        with open(os.path.join(HERE, "recorded", name + ".txt"), "w", encoding="utf-8", newline="\n") as file:
            file.write("\n".join(blocks))
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.write("\n".join(differences))
    print("%d cases recorded, %d deliberate differences" % (count, len(differences)))


if __name__ == "__main__":
    main()
