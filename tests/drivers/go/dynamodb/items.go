package main

import (
	"errors"
	"math/big"
	"sort"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

var itemChecks = []check{
	{"values of every type come back", writesEveryType},
	{"a struct comes back as it was", marshals},
	{"a put replaces an item and returns the old one", puts},
	{"an update that was built returns what was asked for", updates},
	{"conditions that were built hold", conditions},
	{"a delete removes an item and returns it", deletes},
}

func put(item item) {
	must(client.PutItem(background, &dynamodb.PutItemInput{TableName: &table, Item: item}))
}

func writesEveryType() {
	written := item{
		"text": &text{Value: "Größe \U0001F3B5\n\"\\"}, "emptyText": &text{},
		"long": &number{Value: "12345678901234567890123456789012345678"}, "small": &number{Value: "-0.00000000000000000000000000000000000001"},
		"bytes": &binary{Value: []byte{0, 1, 254, 255}}, "emptyBytes": &binary{Value: []byte{}},
		"yes": &types.AttributeValueMemberBOOL{Value: true}, "nothing": &types.AttributeValueMemberNULL{Value: true},
		"list": &list{Value: []value{&text{Value: "a"}, &number{Value: "1"}, &list{Value: []value{}}, &object{Value: item{}}}},
		"map":  &object{Value: item{"deep.er": &object{Value: item{"list": &list{Value: []value{&text{Value: "b"}}}}}}},
		"one":  &texts{Value: []string{""}}, "binaries": &types.AttributeValueMemberBS{Value: [][]byte{{1}}},
	}
	for name, value := range key("types", 1) {
		written[name] = value
	}
	put(with(written, "numbers", &types.AttributeValueMemberNS{Value: []string{"1", "-2.5"}}))
	read := get(key("types", 1))
	numbers := read["numbers"].(*types.AttributeValueMemberNS).Value
	sort.Strings(numbers)
	equal(numbers, []string{"-2.5", "1"})
	delete(written, "numbers")
	delete(read, "numbers")
	equal(read, written)
	put(with(key("types", 2), "n", &list{Value: []value{&number{Value: "1.0"}, &number{Value: "1E+3"}, &number{Value: "-0"}}}))
	equal(get(key("types", 2))["n"], &list{Value: []value{&number{Value: "1"}, &number{Value: "1000"}, &number{Value: "0"}}})
	for wrong, message := range map[value]string{
		&texts{Value: []string{}}:                        "not be empty",
		&texts{Value: []string{"a", "a"}}:                "duplicates",
		&number{Value: strings.Repeat("1", 39)}:          "38 significant digits",
		&number{Value: "one"}:                            "cannot be converted to a numeric value",
		&text{Value: strings.Repeat("x", 410_000)}:       "Item size has exceeded the maximum allowed size",
		&types.AttributeValueMemberNS{Value: []string{}}: "not be empty",
		&types.AttributeValueMemberBS{Value: [][]byte{}}: "not be empty",
		&types.AttributeValueMemberNULL{Value: false}:    "Null attribute value types must have the value of true",
	} {
		answer, err := client.PutItem(background, &dynamodb.PutItemInput{TableName: &table, Item: with(key("types", 3), "wrong", wrong)})
		refuses(answer, err, message)
	}
}

type album struct {
	Artist   string                  `dynamodbav:"p"`
	Year     int                     `dynamodbav:"c"`
	Tracks   []track                 `dynamodbav:"tracks"`
	Labels   []string                `dynamodbav:"labels,stringset,omitempty"`
	Ratings  map[string]float64      `dynamodbav:"ratings"`
	Released time.Time               `dynamodbav:"released"`
	Expires  attributevalue.UnixTime `dynamodbav:"expires"`
	Cover    []byte                  `dynamodbav:"cover"`
	Plays    attributevalue.Number   `dynamodbav:"plays"`
	Note     *string                 `dynamodbav:"note"`
}

type track struct {
	Title   string
	Seconds uint16
}

func marshals() {
	plays := new(big.Int).Exp(big.NewInt(2), big.NewInt(120), nil).String()
	written := album{
		Artist: "Nina Simone", Year: 1965, Tracks: []track{{"Sinnerman", 622}, {"", 0}}, Labels: []string{"Philips"}, Ratings: map[string]float64{"all": 4.75, "tiny": 1e-9},
		Released: time.Date(1965, 10, 1, 0, 0, 0, 5, time.UTC), Expires: attributevalue.UnixTime(time.Unix(4_000_000_000, 0)), Cover: []byte{1, 2},
		Plays: attributevalue.Number(plays),
	}
	put(must(attributevalue.MarshalMap(written)))
	var read album
	succeeds(attributevalue.UnmarshalMap(get(item{"p": &text{Value: "Nina Simone"}, "c": &number{Value: "1965"}}), &read))
	equal(read, written)
}

func puts() {
	replace := func(value string, options dynamodb.PutItemInput) *dynamodb.PutItemOutput {
		options.TableName, options.Item = &table, with(key("put", 1), "v", &number{Value: value})
		return must(client.PutItem(background, &options))
	}
	equal(len(replace("1", dynamodb.PutItemInput{ReturnValues: types.ReturnValueAllOld}).Attributes), 0)
	replaced := replace("2", dynamodb.PutItemInput{ReturnValues: types.ReturnValueAllOld, ReturnConsumedCapacity: types.ReturnConsumedCapacityTotal})
	equal(replaced.Attributes, with(key("put", 1), "v", &number{Value: "1"}))
	equal(*replaced.ConsumedCapacity.CapacityUnits, 1.0)
	build := must(expression.NewBuilder().WithCondition(expression.Name("p").AttributeNotExists()).Build())
	refused := &dynamodb.PutItemInput{
		TableName: &table, Item: key("put", 1), ConditionExpression: build.Condition(), ExpressionAttributeNames: build.Names(),
	}
	equal(len(fails[*types.ConditionalCheckFailedException](client.PutItem(background, refused)).Item), 0)
	refused.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	failure := fails[*types.ConditionalCheckFailedException](client.PutItem(background, refused))
	equal(failure.Item, with(key("put", 1), "v", &number{Value: "2"}))
	equal(failure.ErrorMessage(), "The conditional request failed")
}

func updates() {
	first := key("update", 1)
	first["n"], first["tags"], first["gone"], first["same"] = &number{Value: "1"}, &texts{Value: []string{"a", "b"}}, &text{Value: "x"}, &text{Value: "s"}
	put(first)
	// The builder names every attribute and writes each clause on a line of its own.
	build := must(expression.NewBuilder().WithUpdate(
		expression.Set(expression.Name("n"), expression.Name("n").Plus(expression.Value(1))).
			Set(expression.Name("fresh"), expression.Name("fresh").IfNotExists(expression.Value(0))).
			Set(expression.Name("joined"), expression.ListAppend(expression.IfNotExists(expression.Name("joined"), expression.Value([]int{})), expression.Value([]int{7}))).
			Remove(expression.Name("gone")).
			Add(expression.Name("added"), expression.Value(1.5)).
			Delete(expression.Name("tags"), expression.Value(&texts{Value: []string{"b"}})),
	).WithCondition(expression.And(
		expression.Name("same").BeginsWith("s"),
		expression.Or(expression.Name("n").LessThan(expression.Value(10)), expression.Name("n").In(expression.Value(1), expression.Value(2))),
		expression.Not(expression.Name("none").AttributeExists()),
	)).Build())
	update := func(values types.ReturnValue) item {
		return must(client.UpdateItem(background, &dynamodb.UpdateItemInput{
			TableName: &table, Key: key("update", 1), UpdateExpression: build.Update(), ConditionExpression: build.Condition(),
			ExpressionAttributeNames: build.Names(), ExpressionAttributeValues: build.Values(), ReturnValues: values,
		})).Attributes
	}
	equal(len(update(types.ReturnValueNone)), 0)
	seven := &number{Value: "7"}
	equal(update(types.ReturnValueUpdatedOld), item{
		"n": &number{Value: "2"}, "fresh": &number{Value: "0"}, "joined": &list{Value: []value{seven}}, "added": &number{Value: "1.5"}, "tags": &texts{Value: []string{"a"}},
	})
	equal(update(types.ReturnValueUpdatedNew), item{
		"n": &number{Value: "4"}, "fresh": &number{Value: "0"}, "joined": &list{Value: []value{seven, seven, seven}}, "added": &number{Value: "4.5"},
		"tags": &texts{Value: []string{"a"}},
	})
	equal(update(types.ReturnValueAllOld)["n"], &number{Value: "4"})
	all := update(types.ReturnValueAllNew)
	equal(all, get(key("update", 1)))
	equal(all["same"], &text{Value: "s"})
	build = must(expression.NewBuilder().WithUpdate(expression.Set(expression.Name("n"), expression.Value(0))).
		WithCondition(expression.Name("n").Equal(expression.Value(0))).Build())
	_, err := client.UpdateItem(background, &dynamodb.UpdateItemInput{
		TableName: &table, Key: key("update", 1), UpdateExpression: build.Update(), ConditionExpression: build.Condition(), ExpressionAttributeNames: build.Names(),
		ExpressionAttributeValues: build.Values(), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	var failure *types.ConditionalCheckFailedException
	holds(errors.As(err, &failure), err)
	equal(failure.Item, all)
}

func conditions() {
	put(must(attributevalue.MarshalMap(map[string]any{"p": "where", "c": 1, "n": 10, "s": "bebop", "l": []any{"a"}, "m": map[string]int{"x": 1}})))
	name, of := expression.Name, func(v any) expression.ValueBuilder { return expression.Value(v) }
	for _, condition := range []expression.ConditionBuilder{
		name("n").Equal(of(10)), name("n").NotEqual(of(11)), name("n").LessThan(of(11)), name("n").LessThanEqual(of(10)), name("n").GreaterThan(of(9)),
		name("n").GreaterThanEqual(of(10)), name("n").Between(of(9), of(11)), name("n").In(of(9), of(10)), name("s").BeginsWith("beb"), name("s").Contains("bop"),
		name("l").Contains("a"), name("l[0]").Equal(of("a")), name("m.x").AttributeType(expression.Number), name("m.x").AttributeExists(),
		name("m.y").AttributeNotExists(), name("s").Size().Equal(of(5)), name("m.x").LessThan(name("n")),
	} {
		for _, isTrue := range []bool{true, false} {
			if !isTrue {
				condition = expression.Not(condition)
			}
			built := must(expression.NewBuilder().WithCondition(condition).Build())
			request := &dynamodb.UpdateItemInput{
				TableName: &table, Key: key("where", 1), ConditionExpression: built.Condition(), ExpressionAttributeNames: built.Names(), ExpressionAttributeValues: built.Values(),
			}
			if isTrue {
				must(client.UpdateItem(background, request))
			} else {
				fails[*types.ConditionalCheckFailedException](client.UpdateItem(background, request))
			}
		}
	}
}

func deletes() {
	remove := &dynamodb.DeleteItemInput{TableName: &table, Key: key("put", 1), ReturnValues: types.ReturnValueAllOld}
	build := must(expression.NewBuilder().WithCondition(expression.Name("v").Equal(expression.Value(0))).Build())
	refused := *remove
	refused.ConditionExpression, refused.ExpressionAttributeNames, refused.ExpressionAttributeValues = build.Condition(), build.Names(), build.Values()
	refused.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	there := with(key("put", 1), "v", &number{Value: "2"})
	equal(fails[*types.ConditionalCheckFailedException](client.DeleteItem(background, &refused)).Item, there)
	equal(must(client.DeleteItem(background, remove)).Attributes, there)
	equal(len(must(client.DeleteItem(background, remove)).Attributes), 0)
	equal(len(get(key("put", 1))), 0)
}
