#!/usr/bin/env bash
# gocql 2.1.2 (github.com/apache/cassandra-gocql-driver/v2): a node of a release before 2.2 takes connections 10 s after it says that it is up
# (CASSANDRA-8236), and the driver waits for that. Expected: that it waits for releases below 2.2. Seen: major and minor number are compared apart,
# so it waits for 4.0, 4.1 and 5.0, too, and not for 3.11 or 4.2. A node that closes and opens its port is used 10 s later.
#
# The function is not public: it is called from a file beside it in a vendored copy.
set -euo pipefail
home=$(mktemp -d)
trap 'chmod -R u+w "$home"; rm -rf -- "$home"' EXIT
cd "$home"
cat >main.go <<'GO'
package main

import (
	"fmt"

	gocql "github.com/apache/cassandra-gocql-driver/v2"
)

func main() {
	for _, version := range []string{"2.1.22", "2.2.19", "3.11.17", "4.0.17", "4.1.7", "5.0.2"} {
		fmt.Println(version, gocql.DelayOf(version))
	}
}
GO
go mod init example >/dev/null 2>&1
go get github.com/apache/cassandra-gocql-driver/v2@v2.1.2 >/dev/null 2>&1
go mod vendor
cat >vendor/github.com/apache/cassandra-gocql-driver/v2/delay.go <<'GO'
package gocql

import "time"

// DelayOf says how long the driver waits for a node of a release that says that it is up.
func DelayOf(release string) time.Duration {
	var version cassVersion
	if err := version.Set(release); err != nil {
		panic(err)
	}
	return version.nodeUpDelay()
}
GO
seen=$(go run -mod=vendor .)
echo "$seen"
expected='2.1.22 10s
2.2.19 0s
3.11.17 0s
4.0.17 10s
4.1.7 10s
5.0.2 10s'
[ "$seen" = "$expected" ] || { echo "the behaviour has changed" >&2; exit 1; }
