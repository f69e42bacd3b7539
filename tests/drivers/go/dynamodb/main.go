// The AWS SDK for Go 2 with its packages attributevalue and expression: sdk ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says
// what these are.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const waitMost = time.Minute

type (
	value  = types.AttributeValue
	item   = map[string]value
	text   = types.AttributeValueMemberS
	number = types.AttributeValueMemberN
	binary = types.AttributeValueMemberB
	list   = types.AttributeValueMemberL
	object = types.AttributeValueMemberM
	texts  = types.AttributeValueMemberSS
)

var (
	background    = context.Background()
	client        *dynamodb.Client
	cuttingClient *dynamodb.Client
	prefix        string
	table         string
	counters      string
)

type check struct {
	what string
	do   func()
}

func main() {
	client, cuttingClient, prefix = newClient(os.Args[1]), newClient(os.Args[2]), os.Args[3]
	table, counters = prefix+"-music", prefix+"-counters"
	for _, check := range append(append(tableChecks, itemChecks...), manyItemChecks...) {
		run(check)
	}
	run(check{"a table is deleted and waited for", deletesTables})
	fmt.Println("all as it should be")
}

func run(check check) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Printf("failed: %s\n%v\n", check.what, failure)
			panic(failure)
		}
	}()
	check.do()
	fmt.Println("ok:", check.what)
}

func newClient(endpoint string) *dynamodb.Client {
	config := aws.Config{Region: "us-east-1", Credentials: credentials.NewStaticCredentialsProvider("any", "any", "")}
	return dynamodb.NewFromConfig(config, func(o *dynamodb.Options) { o.BaseEndpoint = aws.String(endpoint) })
}

func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

func succeeds(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(actual, expected any) {
	if !reflect.DeepEqual(actual, expected) {
		panic(fmt.Sprintf("%s\nis not\n%s", shown(actual), shown(expected)))
	}
}

// shown writes out what pointers point to, of an item at least.
func shown(v any) string {
	values, isItem := v.(item)
	if !isItem {
		return fmt.Sprintf("%+v", v)
	}
	var fields []string
	for name, value := range values {
		fields = append(fields, fmt.Sprintf("%s: %+v", name, reflect.ValueOf(value).Elem()))
	}
	return strings.Join(fields, ", ")
}

func holds(condition bool, what ...any) {
	if !condition {
		panic(fmt.Sprint(what...))
	}
}

// fails asserts that the SDK has made the error one of type T, and returns it.
func fails[T error, R any](_ R, err error) T {
	var typed T
	if !errors.As(err, &typed) {
		panic(fmt.Sprintf("%v is not a %T", err, typed))
	}
	return typed
}

// refuses asserts a ValidationException, which has no type in this SDK, with some of its message.
func refuses[R any](_ R, err error, message string) {
	var answered smithy.APIError
	if !errors.As(err, &answered) || answered.ErrorCode() != "ValidationException" || !strings.Contains(answered.ErrorMessage(), message) {
		panic(fmt.Sprintf("%v is not the ValidationException %q", err, message))
	}
}

func key(p string, c int) item {
	return item{"p": &text{Value: p}, "c": &number{Value: fmt.Sprint(c)}}
}

func with(item item, name string, value value) item {
	item[name] = value
	return item
}

func get(key item) item {
	return must(client.GetItem(background, &dynamodb.GetItemInput{TableName: &table, Key: key, ConsistentRead: aws.Bool(true)})).Item
}

var tableChecks = []check{
	{"a table is created, waited for and described", createsTables},
	{"errors of tables have their types", failsByTypes},
	{"a table has a TTL, tags and another billing mode", altersTables},
}

func createsTables() {
	created := must(client.CreateTable(background, &dynamodb.CreateTableInput{
		TableName: &table,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("p"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("c"), AttributeType: types.ScalarAttributeTypeN},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("c"), KeyType: types.KeyTypeRange},
		},
		BillingMode: types.BillingModePayPerRequest,
		Tags:        []types.Tag{{Key: aws.String("team"), Value: aws.String("music")}},
	}))
	holds(time.Since(*created.TableDescription.CreationDateTime) < waitMost, created.TableDescription.CreationDateTime)
	described := must(dynamodb.NewTableExistsWaiter(client).WaitForOutput(background, &dynamodb.DescribeTableInput{TableName: &table}, waitMost)).Table
	equal(described.TableStatus, types.TableStatusActive)
	equal(*described.KeySchema[1].AttributeName, "c")
	equal(described.BillingModeSummary.BillingMode, types.BillingModePayPerRequest)
	equal(*must(client.DescribeTable(background, &dynamodb.DescribeTableInput{TableName: described.TableArn})).Table.TableName, table)
	must(client.CreateTable(background, &dynamodb.CreateTableInput{
		TableName:             &counters,
		AttributeDefinitions:  []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeB}},
		KeySchema:             []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
		ProvisionedThroughput: &types.ProvisionedThroughput{ReadCapacityUnits: aws.Int64(5), WriteCapacityUnits: aws.Int64(6)},
	}))
	described = must(dynamodb.NewTableExistsWaiter(client).WaitForOutput(background, &dynamodb.DescribeTableInput{TableName: &counters}, waitMost)).Table
	equal(*described.ProvisionedThroughput.WriteCapacityUnits, int64(6))
}

func failsByTypes() {
	again := &dynamodb.CreateTableInput{
		TableName:            &table,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("p"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("p"), KeyType: types.KeyTypeHash}},
		BillingMode:          types.BillingModePayPerRequest,
	}
	holds(strings.Contains(fails[*types.ResourceInUseException](client.CreateTable(background, again)).ErrorMessage(), "Table already exists"))
	none := prefix + "-none"
	fails[*types.ResourceNotFoundException](client.DescribeTable(background, &dynamodb.DescribeTableInput{TableName: &none}))
	fails[*types.ResourceNotFoundException](client.GetItem(background, &dynamodb.GetItemInput{TableName: &none, Key: key("a", 1)}))
	fails[*types.ResourceNotFoundException](client.DeleteTable(background, &dynamodb.DeleteTableInput{TableName: &none}))
	got, err := client.GetItem(background, &dynamodb.GetItemInput{TableName: &table, Key: item{"p": &text{Value: "a"}}})
	refuses(got, err, "The provided key element does not match the schema")
	put, err := client.PutItem(background, &dynamodb.PutItemInput{TableName: &table, Item: item{"p": &number{Value: "1"}, "c": &number{Value: "1"}}})
	refuses(put, err, "Type mismatch for key p expected: S actual: N")
}

func altersTables() {
	must(client.UpdateTimeToLive(background, &dynamodb.UpdateTimeToLiveInput{
		TableName: &table, TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("ends"), Enabled: aws.Bool(true)},
	}))
	ttl := must(client.DescribeTimeToLive(background, &dynamodb.DescribeTimeToLiveInput{TableName: &table})).TimeToLiveDescription
	equal(ttl.TimeToLiveStatus, types.TimeToLiveStatusEnabled)
	equal(*ttl.AttributeName, "ends")
	arn := must(client.DescribeTable(background, &dynamodb.DescribeTableInput{TableName: &table})).Table.TableArn
	stage := types.Tag{Key: aws.String("stage"), Value: aws.String("test")}
	must(client.TagResource(background, &dynamodb.TagResourceInput{ResourceArn: arn, Tags: []types.Tag{stage}}))
	must(client.UntagResource(background, &dynamodb.UntagResourceInput{ResourceArn: arn, TagKeys: []string{"team"}}))
	equal(must(client.ListTagsOfResource(background, &dynamodb.ListTagsOfResourceInput{ResourceArn: arn})).Tags, []types.Tag{stage})
	must(client.UpdateTable(background, &dynamodb.UpdateTableInput{
		TableName: &counters, BillingMode: types.BillingModePayPerRequest, DeletionProtectionEnabled: aws.Bool(true),
	}))
	described := must(dynamodb.NewTableExistsWaiter(client).WaitForOutput(background, &dynamodb.DescribeTableInput{TableName: &counters}, waitMost)).Table
	equal(described.BillingModeSummary.BillingMode, types.BillingModePayPerRequest)
	deleted, err := client.DeleteTable(background, &dynamodb.DeleteTableInput{TableName: &counters})
	refuses(deleted, err, "eletion protection")
	must(client.UpdateTable(background, &dynamodb.UpdateTableInput{TableName: &counters, DeletionProtectionEnabled: aws.Bool(false)}))
	found := map[string]bool{}
	for pages := dynamodb.NewListTablesPaginator(client, &dynamodb.ListTablesInput{Limit: aws.Int32(1)}); pages.HasMorePages(); {
		for _, name := range must(pages.NextPage(background)).TableNames {
			found[name] = true
		}
	}
	holds(found[table] && found[counters], found)
	// With discovery the SDK asks for endpoints, and still sends to the one that it was given.
	discovering := dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.EndpointDiscovery.EnableEndpointDiscovery = aws.EndpointDiscoveryEnabled })
	must(discovering.DescribeTable(background, &dynamodb.DescribeTableInput{TableName: &table}))
	must(client.DescribeLimits(background, &dynamodb.DescribeLimitsInput{}))
}

func deletesTables() {
	for _, name := range []string{table, counters} {
		deleted := must(client.DeleteTable(background, &dynamodb.DeleteTableInput{TableName: &name}))
		equal(deleted.TableDescription.TableStatus, types.TableStatusDeleting)
		succeeds(dynamodb.NewTableNotExistsWaiter(client).Wait(background, &dynamodb.DescribeTableInput{TableName: &name}, waitMost))
	}
	fails[*types.ResourceNotFoundException](client.Scan(background, &dynamodb.ScanInput{TableName: &table}))
}
