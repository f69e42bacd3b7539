import com.amazonaws.services.dynamodbv2.AcquireLockOptions;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClient;
import com.amazonaws.services.dynamodbv2.AmazonDynamoDBLockClientOptions;
import com.amazonaws.services.dynamodbv2.CreateDynamoDBTableOptions;
import com.amazonaws.services.dynamodbv2.model.LockCurrentlyUnavailableException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.BillingMode;
import software.amazon.awssdk.services.dynamodb.model.ProvisionedThroughput;
import software.amazon.awssdk.services.dynamodb.model.Tag;
import software.amazon.kinesis.common.DdbTableConfig;
import software.amazon.kinesis.common.HashKeyRangeForLease;
import software.amazon.kinesis.leases.Lease;
import software.amazon.kinesis.leases.UpdateField;
import software.amazon.kinesis.leases.dynamodb.DynamoDBLeaseRefresher;
import software.amazon.kinesis.leases.dynamodb.DynamoDBLeaseSerializer;
import software.amazon.kinesis.leases.dynamodb.TableCreatorCallback;
import software.amazon.kinesis.retrieval.kpl.ExtendedSequenceNumber;

/**
 * The lease table of the Kinesis Client Library, and the DynamoDB Lock Client by which its workers elect a leader: Leases ENDPOINT CUTTING_ENDPOINT
 * PREFIX. tests/drivers/test_dynamodb.py says what these are. The library's index of leases by owner is left out: a table has no secondary indexes yet.
 */
final class Leases {
    private static final int LEASES = 30;
    private static DynamoDBLeaseRefresher refresher;

    public static void main(String[] arguments) {
        var client = Checks.asyncClient(arguments[0]);
        var table = arguments[2] + "-leases";
        var config = new DdbTableConfig().billingMode(BillingMode.PAY_PER_REQUEST);
        refresher = new DynamoDBLeaseRefresher(table, client, new DynamoDBLeaseSerializer(), true, TableCreatorCallback.NOOP_TABLE_CREATOR_CALLBACK,
                Duration.ofMinutes(1), config, false, false, List.of(Tag.builder().key("application").value("test").build()));
        Checks.check("the lease table is created once", Leases::createsTable);
        Checks.check("a lease is created, renewed and taken by one worker at a time", Leases::takes);
        Checks.check("a lease keeps its checkpoints", Leases::checkpoints);
        Checks.check("all leases are listed, also in parallel", Leases::lists);
        Checks.check("leases are deleted", Leases::deletes);
        Checks.check("one worker at a time holds a lock", () -> locks(Checks.client(arguments[0]), arguments[2] + "-locks"));
        Checks.check("the tables are deleted", () -> deletesTables(client, List.of(table, arguments[2] + "-locks")));
        Checks.end();
    }

    private static Lease lease(String key) {
        var lease = new Lease();
        lease.leaseKey(key);
        lease.leaseCounter(0L);
        lease.ownerSwitchesSinceCheckpoint(0L);
        lease.checkpoint(ExtendedSequenceNumber.TRIM_HORIZON);
        lease.parentShardIds(Set.of("parent-0", "parent-1"));
        lease.hashKeyRange(HashKeyRangeForLease.deserialize("0", "340282366920938463463374607431768211455"));
        return lease;
    }

    private static void createsTable() throws Exception {
        Checks.equal(refresher.leaseTableExists(), false);
        Checks.equal(refresher.createLeaseTableIfNotExists(), true);
        Checks.equal(refresher.waitUntilLeaseTableExists(1, 60), true);
        Checks.equal(refresher.createLeaseTableIfNotExists(), true);
        Checks.equal(refresher.isLeaseTableEmpty(), true);
    }

    private static void takes() throws Exception {
        Checks.equal(refresher.createLeaseIfNotExists(lease("shard-0")), true);
        Checks.equal(refresher.createLeaseIfNotExists(lease("shard-0")), false);
        var mine = refresher.getLease("shard-0");
        var theirs = refresher.getLease("shard-0");
        Checks.equal(mine.parentShardIds(), Set.of("parent-0", "parent-1"));
        Checks.equal(mine.hashKeyRangeForLease().serializedEndingHashKey(), "340282366920938463463374607431768211455");
        Checks.equal(refresher.takeLease(mine, "worker-a"), true);
        Checks.equal(refresher.takeLease(theirs, "worker-b"), false);
        Checks.equal(refresher.renewLease(mine), true);
        var read = refresher.getLease("shard-0");
        Checks.equal(List.of(read.leaseOwner(), read.leaseCounter(), read.ownerSwitchesSinceCheckpoint()), List.of("worker-a", 2L, 0L));
        Checks.equal(refresher.takeLease(read, "worker-b"), true);
        Checks.equal(refresher.getLease("shard-0").ownerSwitchesSinceCheckpoint(), 1L);
        Checks.equal(refresher.renewLease(mine), false);
        Checks.equal(refresher.initiateGracefulLeaseHandoff(read, "worker-c"), true);
        var handed = refresher.getLease("shard-0");
        Checks.equal(List.of(handed.leaseOwner(), handed.checkpointOwner()), List.of("worker-c", "worker-b"));
        Checks.equal(refresher.assignLease(handed, "worker-c"), true);
        Checks.equal(refresher.evictLease(refresher.getLease("shard-0")), true);
        Checks.equal(refresher.getLease("shard-0").leaseOwner(), null);
    }

    private static void checkpoints() throws Exception {
        var lease = refresher.getLease("shard-0");
        Checks.equal(refresher.takeLease(lease, "worker-a"), true);
        lease.checkpoint(new ExtendedSequenceNumber("49590338271490256608559692538361571095921575989136588898", 7L));
        lease.pendingCheckpoint(new ExtendedSequenceNumber("49590338271490256608559692538361571095921575989136588899", 0L));
        lease.pendingCheckpointState("state".getBytes(StandardCharsets.UTF_8));
        Checks.equal(refresher.updateLease(lease), true);
        Checks.equal(refresher.getCheckpoint("shard-0"), lease.checkpoint());
        Checks.equal(new String(refresher.getLease("shard-0").pendingCheckpointState(), StandardCharsets.UTF_8), "state");
        lease.childShardIds(Set.of("child-0"));
        refresher.updateLeaseWithMetaInfo(lease, UpdateField.CHILD_SHARDS);
        Checks.equal(refresher.getLease("shard-0").childShardIds(), Set.of("child-0"));
    }

    private static void lists() throws Exception {
        for (int i = 1; i < LEASES; i++) refresher.createLeaseIfNotExists(lease("shard-" + i));
        var expected = IntStream.range(0, LEASES).mapToObj(i -> "shard-" + i).sorted().toList();
        Checks.equal(refresher.listLeases().stream().map(Lease::leaseKey).sorted().toList(), expected);
        var threads = Executors.newFixedThreadPool(4);
        var found = refresher.listLeasesParallely(threads, 4);
        threads.shutdown();
        Checks.equal(found.getKey().stream().map(Lease::leaseKey).sorted().toList(), expected);
        Checks.equal(found.getValue(), List.of());
        Checks.equal(refresher.isLeaseTableEmpty(), false);
    }

    private static void deletes() throws Exception {
        refresher.deleteLease(refresher.getLease("shard-3"));
        Checks.equal(refresher.getLease("shard-3"), null);
        refresher.updateLeaseWithMetaInfo(lease("shard-3"), UpdateField.CHILD_SHARDS);
        Checks.equal(refresher.getLease("shard-3"), null);
        refresher.deleteAll();
        Checks.equal(refresher.isLeaseTableEmpty(), true);
    }

    private static AmazonDynamoDBLockClientOptions.AmazonDynamoDBLockClientOptionsBuilder lockOptions(DynamoDbClient client, String table, String owner) {
        return AmazonDynamoDBLockClientOptions.builder(client, table).withOwnerName(owner).withLeaseDuration(60L).withHeartbeatPeriod(5L)
                .withTimeUnit(TimeUnit.SECONDS).withCreateHeartbeatBackgroundThread(false);
    }

    private static void locks(DynamoDbClient client, String table) throws Exception {
        AmazonDynamoDBLockClient.createLockTableInDynamoDB(CreateDynamoDBTableOptions.builder(client,
                ProvisionedThroughput.builder().readCapacityUnits(1L).writeCapacityUnits(1L).build(), table).build());
        client.waiter().waitUntilTableExists(r -> r.tableName(table));
        var first = new AmazonDynamoDBLockClient(lockOptions(client, table, "worker-a").build());
        var second = new AmazonDynamoDBLockClient(lockOptions(client, table, "worker-b").build());
        Checks.equal(first.lockTableExists(), true);
        var leader = AcquireLockOptions.builder("leader").withData(ByteBuffer.wrap(new byte[] {1, 2})).withDeleteLockOnRelease(false)
                .withShouldSkipBlockingWait(true);
        var lock = first.tryAcquireLock(leader.build()).orElseThrow();
        Checks.fails(LockCurrentlyUnavailableException.class, () -> second.tryAcquireLock(leader.build()));
        lock.sendHeartBeat();
        Checks.equal(second.getLock("leader", Optional.empty()).orElseThrow().getOwnerName(), "worker-a");
        Checks.equal(first.releaseLock(lock), true);
        var taken = second.tryAcquireLock(leader.build()).orElseThrow();
        Checks.equal(taken.getData().orElseThrow().remaining(), 2);
        second.close();
        first.close();
    }

    private static void deletesTables(DynamoDbAsyncClient client, List<String> tables) {
        for (var table : tables) {
            client.deleteTable(r -> r.tableName(table)).join();
            client.waiter().waitUntilTableNotExists(r -> r.tableName(table)).join();
        }
    }
}
