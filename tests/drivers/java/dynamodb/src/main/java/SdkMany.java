import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromB;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromBool;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromN;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromS;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletionException;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.*;

/** What {@link Sdk} does with many items at once. */
final class SdkMany {
    // 3 MB in pages of 1 MB, and more than the 16 MB that one BatchGetItem returns.
    private static final int PAGED_ITEMS = 300;
    private static final int PAGED_BYTES = 10_000;
    private static final int LARGE_ITEMS = 60;
    private static final int LARGE_BYTES = 300_000;
    private static final int BATCH_ITEMS = 25;

    private SdkMany() {}

    private static void writeAll(List<WriteRequest> requests) {
        for (int next = 0; next < requests.size(); next += BATCH_ITEMS) {
            var left = Map.of(Sdk.table, requests.subList(next, Math.min(next + BATCH_ITEMS, requests.size())));
            while (!left.isEmpty()) {
                var items = left;
                left = Sdk.client.batchWriteItem(r -> r.requestItems(items)).unprocessedItems();
            }
        }
    }

    private static void putAll(String p, int count, int bytes) {
        writeAll(IntStream.range(0, count)
                .mapToObj(c -> Sdk.with(Sdk.key(p, c), Map.of("v", fromS("y".repeat(bytes)), "even", fromBool(c % 2 == 0))))
                .map(item -> WriteRequest.builder().putRequest(r -> r.item(item)).build())
                .toList());
    }

    private static List<Integer> numbers(Iterable<Map<String, AttributeValue>> items) {
        var found = new ArrayList<Integer>();
        for (var item : items) found.add(Integer.valueOf(item.get("c").n()));
        return found;
    }

    private static List<Integer> upTo(int count) {
        return IntStream.range(0, count).boxed().toList();
    }

    private static QueryRequest.Builder pages() {
        return QueryRequest.builder().tableName(Sdk.table).keyConditionExpression("p = :p").expressionAttributeValues(Map.of(":p", fromS("pages")));
    }

    static void queries() {
        putAll("pages", PAGED_ITEMS, PAGED_BYTES);
        var all = Sdk.client.queryPaginator(pages().build());
        Checks.equal(numbers(all.items()), upTo(PAGED_ITEMS));
        Checks.equal(all.stream().count(), 3L);
        // The SDK checks the CRC of a compressed answer, too.
        var zipped = Sdk.client.query(pages().overrideConfiguration(o -> o.putHeader("Accept-Encoding", "gzip")).build());
        Checks.holds(zipped.sdkHttpResponse().headers().containsKey("Content-Encoding"), zipped.sdkHttpResponse());
        Checks.equal(numbers(zipped.items()), upTo(zipped.count()));
        var down = new ArrayList<>(numbers(Sdk.client.queryPaginator(pages().scanIndexForward(false).limit(70).consistentRead(true).build()).items()));
        Collections.reverse(down);
        Checks.equal(down, upTo(PAGED_ITEMS));
        var filtered = pages().keyConditionExpression("p = :p AND c BETWEEN :low AND :high").filterExpression("even = :yes").projectionExpression("c")
                .expressionAttributeValues(Map.of(":p", fromS("pages"), ":low", fromN("10"), ":high", fromN("19"), ":yes", fromBool(true)));
        var even = Sdk.client.queryPaginator(filtered.build()).items().stream().toList();
        Checks.equal(numbers(even), List.of(10, 12, 14, 16, 18));
        Checks.equal(even.get(0), Map.of("c", fromN("10")));
        var counted = Sdk.client.query(filtered.projectionExpression(null).select(Select.COUNT).build());
        Checks.equal(List.of(counted.count(), counted.scannedCount(), counted.hasLastEvaluatedKey()), List.of(5, 10, false));
        Checks.equal(Sdk.client.query(pages().limit(3).build()).lastEvaluatedKey(), Sdk.key("pages", 2));
    }

    private static List<String> identities(Iterable<Map<String, AttributeValue>> items) {
        var found = new ArrayList<String>();
        for (var item : items) found.add(item.get("p").s() + "/" + item.get("c").n());
        return found.stream().sorted().toList();
    }

    static void scans() {
        var all = Sdk.client.scanPaginator(r -> r.tableName(Sdk.table).consistentRead(true));
        Checks.holds(all.stream().count() > 2, "pages");
        var segments = IntStream.range(0, 4).parallel()
                .mapToObj(segment -> Sdk.client.scanPaginator(r -> r.tableName(Sdk.table).segment(segment).totalSegments(4).limit(50)).items().stream().toList())
                .flatMap(List::stream)
                .collect(Collectors.toList());
        Checks.equal(identities(segments), identities(all.items()));
        var few = Sdk.client.scanPaginator(r -> r.tableName(Sdk.table).filterExpression("#p = :p AND c < :c").projectionExpression("#p, c")
                .expressionAttributeNames(Map.of("#p", "p")).expressionAttributeValues(Map.of(":p", fromS("pages"), ":c", fromN("3"))));
        Checks.equal(identities(few.items()), List.of("pages/0", "pages/1", "pages/2"));
    }

    static void batches() {
        putAll("large", LARGE_ITEMS, LARGE_BYTES);
        var keys = upTo(LARGE_ITEMS).stream().map(c -> Sdk.key("large", c)).toList();
        var asked = new ArrayList<>(keys);
        asked.add(Sdk.key("large", -1));
        var left = Map.of(Sdk.table, KeysAndAttributes.builder().keys(asked).consistentRead(true).build());
        var found = new ArrayList<Map<String, AttributeValue>>();
        int rounds = 0;
        for (; !left.isEmpty(); rounds++) {
            var items = left;
            var answer = Sdk.client.batchGetItem(r -> r.requestItems(items));
            found.addAll(answer.responses().get(Sdk.table));
            left = answer.unprocessedKeys();
        }
        Checks.holds(rounds > 1, rounds);
        Checks.equal(numbers(found).stream().sorted().toList(), upTo(LARGE_ITEMS));
        writeAll(keys.stream().map(key -> WriteRequest.builder().deleteRequest(r -> r.key(key)).build()).toList());
        var none = Sdk.client.batchGetItem(r -> r.requestItems(Map.of(Sdk.table, KeysAndAttributes.builder().keys(keys).build())));
        Checks.equal(none.responses(), Map.of(Sdk.table, List.of()));
        Checks.equal(none.hasUnprocessedKeys() && none.unprocessedKeys().isEmpty(), true);
        // The paginator asks for what is left by itself.
        var paged = Sdk.client.batchGetItemPaginator(r -> r.requestItems(Map.of(Sdk.table, KeysAndAttributes.builder().keys(Sdk.key("pages", 1)).build())));
        Checks.equal(numbers(paged.stream().flatMap(page -> page.responses().get(Sdk.table).stream()).toList()), List.of(1));
        Checks.refuses("Provided list of item keys contains duplicates", () -> Sdk.client.batchGetItem(r -> r.requestItems(
                Map.of(Sdk.table, KeysAndAttributes.builder().keys(keys.get(0), keys.get(0)).build()))));
    }

    private static Map<String, AttributeValue> counter(int id) {
        return Map.of("id", fromB(SdkBytes.fromByteArray(new byte[] {(byte) id})));
    }

    private static TransactWriteItem addOne(int id) {
        return TransactWriteItem.builder().update(u -> u.tableName(Sdk.counters).key(counter(id)).updateExpression("ADD n :one")
                .expressionAttributeValues(Map.of(":one", fromN("1")))).build();
    }

    static void transacts() {
        var item = Sdk.with(Sdk.key("both", 1), Map.of("v", fromS("put")));
        var write = TransactWriteItemsRequest.builder().clientRequestToken(Sdk.prefix + "-token").transactItems(
                TransactWriteItem.builder().put(p -> p.tableName(Sdk.table).item(item).conditionExpression("attribute_not_exists(p)")).build(),
                addOne(7),
                TransactWriteItem.builder().delete(d -> d.tableName(Sdk.table).key(Sdk.key("types", 2))).build(),
                TransactWriteItem.builder().conditionCheck(c -> c.tableName(Sdk.table).key(Sdk.key("update", 1)).conditionExpression("attribute_exists(p)")).build());
        Sdk.client.transactWriteItems(write.build());
        Sdk.client.transactWriteItems(write.build());
        Checks.fails(IdempotentParameterMismatchException.class, () -> Sdk.client.transactWriteItems(write.transactItems(addOne(7)).build()));
        var read = Sdk.client.transactGetItems(r -> r.transactItems(
                TransactGetItem.builder().get(g -> g.tableName(Sdk.table).key(Sdk.key("both", 1)).projectionExpression("v")).build(),
                TransactGetItem.builder().get(g -> g.tableName(Sdk.table).key(Sdk.key("types", 2))).build(),
                TransactGetItem.builder().get(g -> g.tableName(Sdk.counters).key(counter(7))).build())).responses();
        Checks.equal(read.get(0).item(), Map.of("v", fromS("put")));
        Checks.equal(read.get(1).hasItem(), false);
        Checks.equal(read.get(2).item().get("n"), fromN("1"));
    }

    static void cancels() {
        var cancelled = Checks.fails(TransactionCanceledException.class, () -> Sdk.client.transactWriteItems(r -> r.transactItems(
                TransactWriteItem.builder().put(p -> p.tableName(Sdk.table).item(Sdk.key("both", 2))).build(),
                TransactWriteItem.builder().delete(d -> d.tableName(Sdk.table).key(Sdk.key("both", 1)).conditionExpression("v = :v")
                        .expressionAttributeValues(Map.of(":v", fromS("other"))).returnValuesOnConditionCheckFailure("ALL_OLD")).build())));
        var item = Sdk.with(Sdk.key("both", 1), Map.of("v", fromS("put")));
        Checks.equal(cancelled.cancellationReasons(), List.of(
                CancellationReason.builder().code("None").build(),
                CancellationReason.builder().code("ConditionalCheckFailed").message("The conditional request failed").item(item).build()));
        Checks.equal(Sdk.get(Sdk.key("both", 2)), Map.of());
    }

    private static ExecuteStatementResponse execute(String statement, AttributeValue... parameters) {
        return Sdk.client.executeStatement(r -> {
            r.statement(statement.replace("TABLE", '"' + Sdk.table + '"')).returnValuesOnConditionCheckFailure("ALL_OLD");
            // An empty list of parameters is refused, and no list is not.
            if (parameters.length > 0) r.parameters(parameters);
        });
    }

    static void statements() {
        var insert = "INSERT INTO TABLE VALUE {'p': 'partiql', 'c': ?, 'v': {'list': [?, 'a']}}";
        for (int c = 0; c < 3; c++) execute(insert, fromN(Integer.toString(c)), fromN("1"));
        Checks.fails(DuplicateItemException.class, () -> execute(insert, fromN("0"), fromN("1")));
        var select = ExecuteStatementRequest.builder().statement("SELECT c FROM \"" + Sdk.table + "\" WHERE p = 'partiql' ORDER BY c DESC").limit(2);
        var first = Sdk.client.executeStatement(select.build());
        var rest = Sdk.client.executeStatement(select.nextToken(first.nextToken()).build());
        Checks.equal(List.of(numbers(first.items()), numbers(rest.items())), List.of(List.of(2, 1), List.of(0)));
        var updated = execute("UPDATE TABLE SET v.x = ? REMOVE v.list[0] WHERE p = 'partiql' AND c = 1 RETURNING ALL NEW *", fromN("5")).items().get(0);
        Checks.equal(updated.get("v").m().get("list").l(), List.of(fromS("a")));
        var failure = Checks.fails(ConditionalCheckFailedException.class, () -> execute("DELETE FROM TABLE WHERE p = 'partiql' AND c = 1 AND v.x = 6"));
        Checks.equal(failure.item(), updated);
        var batch = Sdk.client.batchExecuteStatement(r -> r.statements(
                s -> s.statement("SELECT c FROM \"" + Sdk.table + "\" WHERE p = 'partiql' AND c = 2"),
                s -> s.statement("INSERT INTO \"" + Sdk.table + "\" VALUE {'p': 'partiql', 'c': 2}"))).responses();
        Checks.equal(batch.get(0).item(), Map.of("c", fromN("2")));
        Checks.equal(batch.get(1).error().code(), BatchStatementErrorCodeEnum.DUPLICATE_ITEM);
        Sdk.client.executeTransaction(r -> r.transactStatements(
                s -> s.statement("DELETE FROM \"" + Sdk.table + "\" WHERE p = 'partiql' AND c = 0"),
                s -> s.statement("UPDATE \"" + Sdk.table + "\" SET w = ? WHERE p = 'partiql' AND c = 1").parameters(fromS("w"))));
        Checks.equal(Sdk.get(Sdk.key("partiql", 1)).get("w"), fromS("w"));
        Checks.equal(Sdk.get(Sdk.key("partiql", 0)), Map.of());
        Checks.refuses("Statement wasn't well formed, can't be processed", () -> execute("SELEKT"));
    }

    static void asynchronous(DynamoDbAsyncClient client) {
        var found = Collections.synchronizedList(new ArrayList<Integer>());
        client.queryPaginator(pages().build()).items().subscribe(item -> found.add(Integer.valueOf(item.get("c").n()))).join();
        Checks.equal(found, upTo(PAGED_ITEMS));
        var put = client.putItem(r -> r.tableName(Sdk.table).item(Sdk.key("both", 1)).conditionExpression("attribute_not_exists(p)"));
        var failure = Checks.fails(CompletionException.class, put::join);
        Checks.holds(failure.getCause() instanceof ConditionalCheckFailedException, failure);
        client.close();
    }

    static void retries(DynamoDbClient cut) {
        cut.putItem(r -> r.tableName(Sdk.counters).item(Sdk.with(counter(9), Map.of("n", fromN("0")))));
        for (int i = 0; i < 3; i++) cut.transactWriteItems(r -> r.transactItems(addOne(9)));
        Checks.equal(cut.getItem(r -> r.tableName(Sdk.counters).key(counter(9)).consistentRead(true)).item().get("n"), fromN("3"));
    }
}
