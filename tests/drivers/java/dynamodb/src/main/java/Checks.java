import java.net.URI;
import java.util.Objects;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.dynamodb.DynamoDbAsyncClient;
import software.amazon.awssdk.services.dynamodb.DynamoDbBaseClientBuilder;
import software.amazon.awssdk.services.dynamodb.DynamoDbClient;
import software.amazon.awssdk.services.dynamodb.model.DynamoDbException;

/** Runs checks in order, prints one line for each, and ends the program at the first that fails. */
final class Checks {
    interface Check {
        void run() throws Exception;
    }

    private Checks() {}

    static void check(String what, Check check) {
        try {
            check.run();
        } catch (Throwable failure) {
            System.out.println("failed: " + what);
            failure.printStackTrace(System.out);
            System.exit(1);
        }
        System.out.println("ok: " + what);
    }

    static void end() {
        System.out.println("all as it should be");
        System.exit(0);
    }

    static void equal(Object actual, Object expected) {
        holds(Objects.equals(actual, expected), actual + "\nis not\n" + expected);
    }

    static void holds(boolean condition, Object what) {
        if (!condition) throw new AssertionError(String.valueOf(what));
    }

    /** Asserts that the SDK throws this class, and returns what it throws. */
    static <E extends Exception> E fails(Class<E> expected, Check request) {
        try {
            request.run();
        } catch (Exception thrown) {
            if (expected.isInstance(thrown)) return expected.cast(thrown);
            throw new AssertionError(thrown + " is not a " + expected, thrown);
        }
        throw new AssertionError("no " + expected);
    }

    /** Asserts a ValidationException, which has no class in this SDK, with some of its message. */
    static void refuses(String message, Check request) {
        var details = fails(DynamoDbException.class, request).awsErrorDetails();
        equal(details.errorCode(), "ValidationException");
        holds(details.errorMessage().contains(message), details.errorMessage());
    }

    static DynamoDbClient client(String endpoint) {
        return with(DynamoDbClient.builder(), endpoint).build();
    }

    static DynamoDbAsyncClient asyncClient(String endpoint) {
        return with(DynamoDbAsyncClient.builder(), endpoint).build();
    }

    private static <B extends DynamoDbBaseClientBuilder<B, ?> & software.amazon.awssdk.awscore.client.builder.AwsClientBuilder<B, ?>> B with(
            B builder, String endpoint) {
        var credentials = StaticCredentialsProvider.create(AwsBasicCredentials.create("any", "any"));
        return builder.endpointOverride(URI.create(endpoint)).region(Region.US_EAST_1).credentialsProvider(credentials);
    }
}
