"""What CI runs of the suites that nobody here wrote: those parts of what Maven Central has that are done in two minutes."""

import pytest

from harness import java_suite, stress

SECONDS = 300
CLASSES = (
    "AsyncResultSetTest BatchStatementTest BoundStatementTest CaseSensitivityTest ConditionalUpdateTest DataTypeIntegrationTest DurationIntegrationTest "
    "FetchingTest PagingStateTest PreparedStatementTest PreparedStatementInvalidationTest QueryTimestampTest SimpleStatementIntegrationTest TableMetadataTest "
    "TupleTest TypeCodec.*IntegrationTest UserTypesTest WarningsTest querybuilder.QueryBuilderExecutionTest querybuilder.QueryBuilderITest"
)


def test_java_driver_3(apart, tmp_path):
    expected, outcomes, said = java_suite.run(tmp_path, "|".join(CLASSES.split()), "short", SECONDS)
    expected.compare(outcomes, said, whole=False)


@pytest.mark.parametrize("workload", ["mixed", "counters"])
def test_cassandra_stress(apart, tmp_path, workload):
    stress.run_predefined(tmp_path, workload)
