import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromB;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromBool;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromBs;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromL;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromM;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromN;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromNs;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromNul;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromS;
import static software.amazon.awssdk.services.dynamodb.model.AttributeValue.fromSs;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.*;

/** The AWS SDK for Java 2, its low-level client: Sdk ENDPOINT CUTTING_ENDPOINT PREFIX. tests/drivers/test_dynamodb.py says what these are. */
final class Sdk {
    static DynamoDbClient client;
    static String prefix;
    static String table;
    static String counters;

    public static void main(String[] arguments) {
        client = Checks.client(arguments[0]);
        prefix = arguments[2];
        table = prefix + "-music";
        counters = prefix + "-counters";
        Checks.check("a table is created, waited for and described", Sdk::createsTables);
        Checks.check("errors of tables have their classes", Sdk::failsByClasses);
        Checks.check("a table has a TTL, tags and another billing mode", Sdk::altersTables);
        Checks.check("values of every type come back", Sdk::writesEveryType);
        Checks.check("a put replaces an item and returns the old one", Sdk::puts);
        Checks.check("an update returns what was asked for", Sdk::updates);
        Checks.check("a delete removes an item and returns it", Sdk::deletes);
        Checks.check("a query reads all pages", SdkMany::queries);
        Checks.check("a scan reads all pages, also in parallel", SdkMany::scans);
        Checks.check("batches are written and read until nothing is left", SdkMany::batches);
        Checks.check("a transaction is done as a whole", SdkMany::transacts);
        Checks.check("a cancelled transaction has a reason for each item", SdkMany::cancels);
        Checks.check("PartiQL statements write and read", SdkMany::statements);
        Checks.check("the asynchronous client reads pages and fails by classes", () -> SdkMany.asynchronous(Checks.asyncClient(arguments[0])));
        Checks.check("a request whose answer is lost is sent again and done once", () -> SdkMany.retries(Checks.client(arguments[1])));
        Checks.check("a table is deleted and waited for", Sdk::deletesTables);
        Checks.end();
    }

    static Map<String, AttributeValue> key(String p, int c) {
        return Map.of("p", fromS(p), "c", fromN(Integer.toString(c)));
    }

    static Map<String, AttributeValue> with(Map<String, AttributeValue> item, Map<String, AttributeValue> more) {
        var all = new HashMap<>(item);
        all.putAll(more);
        return all;
    }

    static Map<String, AttributeValue> get(Map<String, AttributeValue> key) {
        return client.getItem(r -> r.tableName(table).key(key).consistentRead(true)).item();
    }

    private static void createsTables() {
        client.createTable(r -> r.tableName(table)
                .attributeDefinitions(d -> d.attributeName("p").attributeType("S"), d -> d.attributeName("c").attributeType("N"))
                .keySchema(k -> k.attributeName("p").keyType("HASH"), k -> k.attributeName("c").keyType("RANGE"))
                .billingMode(BillingMode.PAY_PER_REQUEST)
                .tags(t -> t.key("team").value("music")));
        var described = client.waiter().waitUntilTableExists(r -> r.tableName(table)).matched().response().orElseThrow().table();
        Checks.equal(described.tableStatus(), TableStatus.ACTIVE);
        Checks.equal(described.keySchema().get(1).attributeName(), "c");
        Checks.equal(described.billingModeSummary().billingMode(), BillingMode.PAY_PER_REQUEST);
        Checks.holds(described.creationDateTime().isBefore(java.time.Instant.now().plusSeconds(1)), described);
        Checks.equal(client.describeTable(r -> r.tableName(described.tableArn())).table().tableName(), table);
        client.createTable(r -> r.tableName(counters)
                .attributeDefinitions(d -> d.attributeName("id").attributeType("B"))
                .keySchema(k -> k.attributeName("id").keyType("HASH"))
                .provisionedThroughput(t -> t.readCapacityUnits(5L).writeCapacityUnits(6L)));
        client.waiter().waitUntilTableExists(r -> r.tableName(counters));
        Checks.equal(client.describeTable(r -> r.tableName(counters)).table().provisionedThroughput().writeCapacityUnits(), 6L);
    }

    private static void failsByClasses() {
        var none = prefix + "-none";
        var inUse = Checks.fails(ResourceInUseException.class, () -> client.createTable(r -> r.tableName(table)
                .attributeDefinitions(d -> d.attributeName("p").attributeType("S"))
                .keySchema(k -> k.attributeName("p").keyType("HASH"))
                .billingMode(BillingMode.PAY_PER_REQUEST)));
        Checks.holds(inUse.getMessage().contains("Table already exists"), inUse);
        Checks.fails(ResourceNotFoundException.class, () -> client.describeTable(r -> r.tableName(none)));
        Checks.fails(ResourceNotFoundException.class, () -> client.getItem(r -> r.tableName(none).key(key("a", 1))));
        Checks.fails(ResourceNotFoundException.class, () -> client.deleteTable(r -> r.tableName(none)));
        Checks.refuses("The provided key element does not match the schema", () -> client.getItem(r -> r.tableName(table).key(Map.of("p", fromS("a")))));
        Checks.refuses("Type mismatch for key p expected: S actual: N", () -> put(Map.of("p", fromN("1"), "c", fromN("1"))));
    }

    private static void altersTables() {
        client.updateTimeToLive(r -> r.tableName(table).timeToLiveSpecification(t -> t.enabled(true).attributeName("ends")));
        var ttl = client.describeTimeToLive(r -> r.tableName(table)).timeToLiveDescription();
        Checks.equal(ttl, TimeToLiveDescription.builder().timeToLiveStatus("ENABLED").attributeName("ends").build());
        var arn = client.describeTable(r -> r.tableName(table)).table().tableArn();
        client.tagResource(r -> r.resourceArn(arn).tags(t -> t.key("stage").value("test")));
        client.untagResource(r -> r.resourceArn(arn).tagKeys("team"));
        Checks.equal(client.listTagsOfResource(r -> r.resourceArn(arn)).tags(), List.of(Tag.builder().key("stage").value("test").build()));
        client.updateTable(r -> r.tableName(counters).billingMode(BillingMode.PAY_PER_REQUEST).deletionProtectionEnabled(true));
        client.waiter().waitUntilTableExists(r -> r.tableName(counters));
        Checks.refuses("eletion protection", () -> client.deleteTable(r -> r.tableName(counters)));
        client.updateTable(r -> r.tableName(counters).deletionProtectionEnabled(false));
        var names = client.listTablesPaginator(r -> r.limit(1)).tableNames().stream().collect(Collectors.toSet());
        Checks.holds(names.containsAll(Set.of(table, counters)), names);
        Checks.holds(client.describeLimits().accountMaxReadCapacityUnits() > 0, "limits");
        Checks.equal(client.describeContinuousBackups(r -> r.tableName(table)).continuousBackupsDescription().pointInTimeRecoveryDescription()
                .pointInTimeRecoveryStatus(), PointInTimeRecoveryStatus.DISABLED);
    }

    static PutItemResponse put(Map<String, AttributeValue> item) {
        return client.putItem(r -> r.tableName(table).item(item));
    }

    private static SdkBytes bytes(int... values) {
        var array = new byte[values.length];
        for (int i = 0; i < values.length; i++) array[i] = (byte) values[i];
        return SdkBytes.fromByteArray(array);
    }

    private static void writesEveryType() {
        var item = with(key("types", 1), Map.of(
                "text", fromS("Größe \uD83C\uDFB5\n\"\\"), "emptyText", fromS(""), "long", fromN("12345678901234567890123456789012345678"),
                "small", fromN("-0.00000000000000000000000000000000000001"), "bytes", fromB(bytes(0, 1, 254, 255)), "emptyBytes", fromB(bytes()),
                "yes", fromBool(true), "nothing", fromNul(true),
                "list", fromL(List.of(fromS("a"), fromN("1"), fromL(List.of()), fromM(Map.of()))),
                "map", fromM(Map.of("deep.er", fromM(Map.of("list", fromL(List.of(fromNul(true)))))))));
        put(with(item, Map.of("texts", fromSs(List.of("b", "a", "")), "numbers", fromNs(List.of("1", "-2.5")), "binaries", fromBs(List.of(bytes(2), bytes(1))))));
        var read = new HashMap<>(get(key("types", 1)));
        Checks.equal(Set.copyOf(read.remove("texts").ss()), Set.of("a", "b", ""));
        Checks.equal(Set.copyOf(read.remove("numbers").ns()), Set.of("1", "-2.5"));
        Checks.equal(Set.copyOf(read.remove("binaries").bs()), Set.of(bytes(1), bytes(2)));
        Checks.equal(read, item);
        put(with(key("types", 2), Map.of("n", fromL(List.of(fromN("1.0"), fromN("1E+3"), fromN("-0"))))));
        Checks.equal(get(key("types", 2)).get("n"), fromL(List.of(fromN("1"), fromN("1000"), fromN("0"))));
        var wrong = Map.of(
                fromSs(List.of()), "not be empty", fromNs(List.of()), "not be empty", fromBs(List.of()), "not be empty",
                fromSs(List.of("a", "a")), "duplicates", fromN("1".repeat(39)), "38 significant digits", fromN("one"), "cannot be converted to a numeric value",
                fromS("x".repeat(410_000)), "Item size has exceeded the maximum allowed size");
        wrong.forEach((value, message) -> Checks.refuses(message, () -> put(with(key("types", 3), Map.of("wrong", value)))));
        Checks.refuses("empty string value", () -> put(key("", 1)));
    }

    private static void puts() {
        var first = with(key("put", 1), Map.of("v", fromN("1")));
        var second = with(key("put", 1), Map.of("v", fromN("2")));
        Checks.equal(client.putItem(r -> r.tableName(table).item(first).returnValues("ALL_OLD")).hasAttributes(), false);
        var replaced = client.putItem(r -> r.tableName(table).item(second).returnValues("ALL_OLD").returnConsumedCapacity("TOTAL"));
        Checks.equal(replaced.attributes(), first);
        Checks.equal(replaced.consumedCapacity().capacityUnits(), 1.0);
        var request = PutItemRequest.builder().tableName(table).item(first).conditionExpression("attribute_not_exists(p)");
        var failure = Checks.fails(ConditionalCheckFailedException.class, () -> client.putItem(request.build()));
        Checks.equal(failure.hasItem(), false);
        Checks.equal(failure.awsErrorDetails().errorMessage(), "The conditional request failed");
        request.returnValuesOnConditionCheckFailure("ALL_OLD");
        Checks.equal(Checks.fails(ConditionalCheckFailedException.class, () -> client.putItem(request.build())).item(), second);
    }

    private static void updates() {
        put(with(key("update", 1), Map.of(
                "n", fromN("1"), "tags", fromSs(List.of("a", "b")), "gone", fromS("x"), "same", fromS("s"), "nested", fromM(Map.of("list", fromL(List.of(fromN("0"))))))));
        var update = UpdateItemRequest.builder().tableName(table).key(key("update", 1))
                .updateExpression("SET #n = #n + :one, nested.#l[0] = :one, fresh = if_not_exists(fresh, :zero) + :one, joined = list_append(nested.#l, :list) "
                        + "REMOVE gone ADD added :one, more :set DELETE tags :set")
                .conditionExpression("same = :s AND NOT #n IN (:zero, :list)")
                .expressionAttributeNames(Map.of("#n", "n", "#l", "list"))
                .expressionAttributeValues(Map.of(
                        ":one", fromN("1"), ":zero", fromN("0"), ":list", fromL(List.of(fromS("l"))), ":set", fromSs(List.of("b")), ":s", fromS("s")));
        Checks.equal(client.updateItem(update.build()).hasAttributes(), false);
        var nested = fromM(Map.of("list", fromL(List.of(fromN("1")))));
        Checks.equal(client.updateItem(update.returnValues("UPDATED_OLD").build()).attributes(), Map.of(
                "n", fromN("2"), "nested", nested, "fresh", fromN("1"), "joined", fromL(List.of(fromN("0"), fromS("l"))), "added", fromN("1"),
                "more", fromSs(List.of("b")), "tags", fromSs(List.of("a"))));
        Checks.equal(client.updateItem(update.returnValues("UPDATED_NEW").build()).attributes(), Map.of(
                "n", fromN("4"), "nested", nested, "fresh", fromN("3"), "joined", fromL(List.of(fromN("1"), fromS("l"))), "added", fromN("3"),
                "more", fromSs(List.of("b")), "tags", fromSs(List.of("a"))));
        Checks.equal(client.updateItem(update.returnValues("ALL_OLD").build()).attributes().get("n"), fromN("4"));
        var all = client.updateItem(update.returnValues("ALL_NEW").build()).attributes();
        Checks.equal(all, get(key("update", 1)));
        Checks.equal(all.get("same"), fromS("s"));
        var failing = update.conditionExpression("same <> :s AND NOT #n IN (:zero, :list)").returnValuesOnConditionCheckFailure("ALL_OLD").build();
        Checks.equal(Checks.fails(ConditionalCheckFailedException.class, () -> client.updateItem(failing)).item(), all);
        // The parameters that expressions replaced.
        var legacy = client.updateItem(r -> r.tableName(table).key(key("update", 1)).returnValues("UPDATED_NEW")
                .attributeUpdates(Map.of("added", AttributeValueUpdate.builder().action("ADD").value(fromN("10")).build()))
                .expected(Map.of("same", ExpectedAttributeValue.builder().comparisonOperator("BEGINS_WITH").attributeValueList(fromS("s")).build())));
        Checks.equal(legacy.attributes(), Map.of("added", fromN("15")));
    }

    private static void deletes() {
        var there = with(key("put", 1), Map.of("v", fromN("2")));
        var failing = DeleteItemRequest.builder().tableName(table).key(key("put", 1)).conditionExpression("v = :v")
                .expressionAttributeValues(Map.of(":v", fromN("0"))).returnValuesOnConditionCheckFailure("ALL_OLD").build();
        Checks.equal(Checks.fails(ConditionalCheckFailedException.class, () -> client.deleteItem(failing)).item(), there);
        Checks.equal(client.deleteItem(r -> r.tableName(table).key(key("put", 1)).returnValues("ALL_OLD")).attributes(), there);
        Checks.equal(client.deleteItem(r -> r.tableName(table).key(key("put", 1)).returnValues("ALL_OLD")).hasAttributes(), false);
        Checks.equal(client.getItem(r -> r.tableName(table).key(key("put", 1))).hasItem(), false);
    }

    private static void deletesTables() {
        for (var name : List.of(table, counters)) {
            Checks.equal(client.deleteTable(r -> r.tableName(name)).tableDescription().tableStatus(), TableStatus.DELETING);
            client.waiter().waitUntilTableNotExists(r -> r.tableName(name));
        }
        Checks.fails(ResourceNotFoundException.class, () -> client.scan(r -> r.tableName(table)));
    }
}
