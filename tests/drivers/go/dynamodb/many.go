package main

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/expression"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// 3 MB in pages of 1 MB, and more than the 16 MB that one BatchGetItem returns.
const (
	pagedItems, pagedBytes = 300, 10_000
	largeItems, largeBytes = 60, 300_000
	batchItems             = 25
)

var manyItemChecks = []check{
	{"a query reads all pages", queries},
	{"a scan reads all pages, also in parallel", scans},
	{"batches are written and read until nothing is left", batches},
	{"a transaction is done as a whole", transacts},
	{"a cancelled transaction has a reason for each item", cancels},
	{"PartiQL statements write and read", statements},
	{"a request whose answer is lost is sent again and done once", retries},
}

func writeAll(requests []types.WriteRequest) {
	for len(requests) > 0 {
		size := min(batchItems, len(requests))
		left := map[string][]types.WriteRequest{table: requests[:size]}
		for len(left) > 0 {
			left = must(client.BatchWriteItem(background, &dynamodb.BatchWriteItemInput{RequestItems: left})).UnprocessedItems
		}
		requests = requests[size:]
	}
}

func putAll(p string, count, bytes int) {
	var requests []types.WriteRequest
	for c := range count {
		item := with(with(key(p, c), "v", &text{Value: strings.Repeat("y", bytes)}), "even", &types.AttributeValueMemberBOOL{Value: c%2 == 0})
		requests = append(requests, types.WriteRequest{PutRequest: &types.PutRequest{Item: item}})
	}
	writeAll(requests)
}

func numbers(items []item) []int {
	var rows []struct {
		C int `dynamodbav:"c"`
	}
	succeeds(attributevalue.UnmarshalListOfMaps(items, &rows))
	found := make([]int, len(rows))
	for i, row := range rows {
		found[i] = row.C
	}
	return found
}

func upTo(count int) []int {
	all := make([]int, count)
	for i := range all {
		all[i] = i
	}
	return all
}

func queried(input dynamodb.QueryInput) (found []item, count int) {
	for pages := dynamodb.NewQueryPaginator(client, &input); pages.HasMorePages(); count++ {
		found = append(found, must(pages.NextPage(background)).Items...)
	}
	return found, count
}

func queries() {
	putAll("pages", pagedItems, pagedBytes)
	build := must(expression.NewBuilder().WithKeyCondition(expression.Key("p").Equal(expression.Value("pages"))).Build())
	query := dynamodb.QueryInput{
		TableName: &table, KeyConditionExpression: build.KeyCondition(), ExpressionAttributeNames: build.Names(), ExpressionAttributeValues: build.Values(),
	}
	found, count := queried(query)
	equal(numbers(found), upTo(pagedItems))
	equal(count, 3)
	query.ScanIndexForward, query.Limit, query.ConsistentRead = aws.Bool(false), aws.Int32(70), aws.Bool(true)
	found, _ = queried(query)
	down := numbers(found)
	slices.Reverse(down)
	equal(down, upTo(pagedItems))

	// The SDK checks the CRC of a compressed answer, too.
	zipped := dynamodb.New(client.Options(), func(o *dynamodb.Options) { o.EnableAcceptEncodingGzip = true })
	equal(len(must(zipped.Query(background, &query)).Items), 70)

	key := expression.Key("p").Equal(expression.Value("pages")).And(expression.Key("c").Between(expression.Value(10), expression.Value(19)))
	build = must(expression.NewBuilder().WithKeyCondition(key).WithFilter(expression.Name("even").Equal(expression.Value(true))).
		WithProjection(expression.NamesList(expression.Name("c"))).Build())
	filtered := dynamodb.QueryInput{
		TableName: &table, KeyConditionExpression: build.KeyCondition(), FilterExpression: build.Filter(), ProjectionExpression: build.Projection(),
		ExpressionAttributeNames: build.Names(), ExpressionAttributeValues: build.Values(),
	}
	found, _ = queried(filtered)
	equal(numbers(found), []int{10, 12, 14, 16, 18})
	equal(len(found[0]), 1)
	filtered.Select, filtered.ProjectionExpression = types.SelectCount, nil
	filtered.ExpressionAttributeNames = map[string]string{}
	for placeholder, name := range build.Names() {
		if strings.Contains(*filtered.KeyConditionExpression+*filtered.FilterExpression, placeholder) {
			filtered.ExpressionAttributeNames[placeholder] = name
		}
	}
	counted := must(client.Query(background, &filtered))
	equal([]int32{counted.Count, counted.ScannedCount}, []int32{5, 10})
	holds(counted.LastEvaluatedKey == nil)
}

func scanned(input dynamodb.ScanInput) (found []item, count int) {
	for pages := dynamodb.NewScanPaginator(client, &input); pages.HasMorePages(); count++ {
		found = append(found, must(pages.NextPage(background)).Items...)
	}
	return found, count
}

func identities(items []item) []string {
	var all []string
	for _, item := range items {
		all = append(all, item["p"].(*text).Value+"/"+item["c"].(*number).Value)
	}
	sort.Strings(all)
	return all
}

func scans() {
	all, count := scanned(dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	holds(count > 2, count)
	const segments = 4
	var parts [segments][]item
	var done sync.WaitGroup
	for segment := range segments {
		done.Go(func() {
			parts[segment], _ = scanned(dynamodb.ScanInput{
				TableName: &table, Segment: aws.Int32(int32(segment)), TotalSegments: aws.Int32(segments), Limit: aws.Int32(50),
			})
		})
	}
	done.Wait()
	var together []item
	for _, part := range parts {
		together = append(together, part...)
	}
	equal(identities(together), identities(all))
	build := must(expression.NewBuilder().WithFilter(expression.Name("p").Equal(expression.Value("pages")).And(expression.Name("c").LessThan(expression.Value(3)))).Build())
	found, _ := scanned(dynamodb.ScanInput{
		TableName: &table, FilterExpression: build.Filter(), ExpressionAttributeNames: build.Names(), ExpressionAttributeValues: build.Values(),
	})
	equal(identities(found), []string{"pages/0", "pages/1", "pages/2"})
}

func batches() {
	putAll("large", largeItems, largeBytes)
	keys := []item{}
	for c := range largeItems {
		keys = append(keys, key("large", c))
	}
	var found []item
	rounds := 0
	left := map[string]types.KeysAndAttributes{table: {Keys: append(keys, key("large", -1)), ConsistentRead: aws.Bool(true)}}
	for ; len(left) > 0; rounds++ {
		answer := must(client.BatchGetItem(background, &dynamodb.BatchGetItemInput{RequestItems: left}))
		found = append(found, answer.Responses[table]...)
		left = answer.UnprocessedKeys
	}
	holds(rounds > 1, rounds)
	read := numbers(found)
	sort.Ints(read)
	equal(read, upTo(largeItems))
	var requests []types.WriteRequest
	for _, key := range keys {
		requests = append(requests, types.WriteRequest{DeleteRequest: &types.DeleteRequest{Key: key}})
	}
	writeAll(requests)
	none := must(client.BatchGetItem(background, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{table: {Keys: keys}}}))
	items, named := none.Responses[table]
	holds(named && len(items) == 0 && len(none.UnprocessedKeys) == 0, none.Responses)
	twice, err := client.BatchGetItem(background, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{table: {Keys: []item{keys[0], keys[0]}}},
	})
	refuses(twice, err, "Provided list of item keys contains duplicates")
}

func addOne(id byte) *types.Update {
	build := must(expression.NewBuilder().WithUpdate(expression.Add(expression.Name("n"), expression.Value(1))).Build())
	return &types.Update{
		TableName: &counters, Key: item{"id": &binary{Value: []byte{id}}}, UpdateExpression: build.Update(), ExpressionAttributeNames: build.Names(),
		ExpressionAttributeValues: build.Values(),
	}
}

func transacts() {
	there := aws.String("attribute_exists(p)")
	write := &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: &table, Item: with(key("both", 1), "v", &text{Value: "put"}), ConditionExpression: aws.String("attribute_not_exists(p)")}},
			{Update: addOne(7)},
			{Delete: &types.Delete{TableName: &table, Key: key("types", 2), ConditionExpression: there}},
			{ConditionCheck: &types.ConditionCheck{TableName: &table, Key: key("where", 1), ConditionExpression: there}},
		},
		ClientRequestToken: aws.String(prefix + "-token"),
	}
	must(client.TransactWriteItems(background, write))
	must(client.TransactWriteItems(background, write))
	other := *write
	other.TransactItems = write.TransactItems[1:2]
	fails[*types.IdempotentParameterMismatchException](client.TransactWriteItems(background, &other))
	read := must(client.TransactGetItems(background, &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: &table, Key: key("both", 1), ProjectionExpression: aws.String("v")}},
		{Get: &types.Get{TableName: &table, Key: key("types", 2)}},
		{Get: &types.Get{TableName: &counters, Key: addOne(7).Key}},
	}}))
	equal(read.Responses[0].Item, item{"v": &text{Value: "put"}})
	equal(len(read.Responses[1].Item), 0)
	equal(read.Responses[2].Item["n"], &number{Value: "1"})
}

func cancels() {
	build := must(expression.NewBuilder().WithCondition(expression.Name("v").Equal(expression.Value("other"))).Build())
	cancelled := fails[*types.TransactionCanceledException](client.TransactWriteItems(background, &dynamodb.TransactWriteItemsInput{
		TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: &table, Item: key("both", 2)}},
			{Delete: &types.Delete{
				TableName: &table, Key: key("both", 1), ConditionExpression: build.Condition(), ExpressionAttributeNames: build.Names(),
				ExpressionAttributeValues: build.Values(), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
			}},
		},
	}))
	holds(strings.HasSuffix(cancelled.ErrorMessage(), "[None, ConditionalCheckFailed]"), cancelled)
	equal(*cancelled.CancellationReasons[0].Code, "None")
	equal(*cancelled.CancellationReasons[1].Code, "ConditionalCheckFailed")
	equal(cancelled.CancellationReasons[1].Item, with(key("both", 1), "v", &text{Value: "put"}))
	equal(len(get(key("both", 2))), 0)
}

func statements() {
	execute := func(statement string, parameters ...any) (*dynamodb.ExecuteStatementOutput, error) {
		input := &dynamodb.ExecuteStatementInput{Statement: aws.String(statement), ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld}
		for _, parameter := range parameters {
			input.Parameters = append(input.Parameters, must(attributevalue.Marshal(parameter)))
		}
		return client.ExecuteStatement(background, input)
	}
	insert := fmt.Sprintf(`INSERT INTO "%s" VALUE {'p': ?, 'c': ?, 'v': ?}`, table)
	for c := range 3 {
		must(execute(insert, "partiql", c, map[string]any{"list": []int{c}}))
	}
	fails[*types.DuplicateItemException](execute(insert, "partiql", 0, nil))
	query := &dynamodb.ExecuteStatementInput{
		Statement: aws.String(fmt.Sprintf(`SELECT c FROM "%s" WHERE p = 'partiql' ORDER BY c DESC`, table)), Limit: aws.Int32(2),
	}
	first := must(client.ExecuteStatement(background, query))
	query.NextToken = first.NextToken
	rest := must(client.ExecuteStatement(background, query))
	equal([][]int{numbers(first.Items), numbers(rest.Items)}, [][]int{{2, 1}, {0}})
	updated := must(execute(fmt.Sprintf(`UPDATE "%s" SET v.x = ? WHERE p = 'partiql' AND c = 1 RETURNING ALL NEW *`, table), 5))
	equal(updated.Items[0]["v"].(*object).Value["x"], &number{Value: "5"})
	failure := fails[*types.ConditionalCheckFailedException](execute(fmt.Sprintf(`DELETE FROM "%s" WHERE p = 'partiql' AND c = 1 AND v.x = 6`, table)))
	equal(failure.Item, updated.Items[0])
	batch := must(client.BatchExecuteStatement(background, &dynamodb.BatchExecuteStatementInput{Statements: []types.BatchStatementRequest{
		{Statement: aws.String(fmt.Sprintf(`SELECT c FROM "%s" WHERE p = 'partiql' AND c = 2`, table))},
		{Statement: aws.String(insert), Parameters: []value{&text{Value: "partiql"}, &number{Value: "2"}, &text{Value: "v"}}},
	}}))
	equal(batch.Responses[0].Item, item{"c": &number{Value: "2"}})
	equal(batch.Responses[1].Error.Code, types.BatchStatementErrorCodeEnumDuplicateItem)
	must(client.ExecuteTransaction(background, &dynamodb.ExecuteTransactionInput{TransactStatements: []types.ParameterizedStatement{
		{Statement: aws.String(fmt.Sprintf(`DELETE FROM "%s" WHERE p = 'partiql' AND c = 0`, table))},
		{Statement: aws.String(fmt.Sprintf(`UPDATE "%s" SET w = 1 WHERE p = 'partiql' AND c = 1`, table))},
	}}))
	equal(get(key("partiql", 1))["w"], &number{Value: "1"})
	equal(len(get(key("partiql", 0))), 0)
	answer, err := execute("SELEKT")
	refuses(answer, err, "Statement wasn't well formed, can't be processed")
}

func retries() {
	id := addOne(9).Key
	must(cuttingClient.PutItem(background, &dynamodb.PutItemInput{TableName: &counters, Item: item{"id": id["id"], "n": &number{Value: "0"}}}))
	for range 3 {
		must(cuttingClient.TransactWriteItems(background, &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{{Update: addOne(9)}}}))
	}
	read := must(cuttingClient.GetItem(background, &dynamodb.GetItemInput{TableName: &counters, Key: id, ConsistentRead: aws.Bool(true)}))
	equal(read.Item["n"], &number{Value: "3"})
}
