// The Go driver, gocql, against a node: main HOST PORT KEYSPACE; against several: main HOST PORT KEYSPACE cluster (or load [ring]).
package main

import (
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"gopkg.in/inf.v0"
)

const rows = 100

func main() {
	log.SetFlags(0)
	host, keyspace := os.Args[1], os.Args[3]
	port, err := strconv.Atoi(os.Args[2])
	must(err)
	if len(os.Args) > 4 && os.Args[4] == "load" {
		driveLoad(host, port, keyspace, len(os.Args) > 5)
		return
	}
	if len(os.Args) > 4 {
		driveCluster(host, port, keyspace)
	} else {
		for _, version := range []int{3, 4} {
			drive(host, port, keyspace, version)
		}
	}
	fmt.Println("gocql: all as it should be")
}

func drive(host string, port int, keyspace string, version int) {
	cluster := gocql.NewCluster(host)
	cluster.Port = port
	cluster.ProtoVersion = version
	cluster.Timeout = 30 * time.Second
	cluster.ConnectTimeout = 30 * time.Second
	cluster.Consistency = gocql.LocalQuorum
	cluster.DisableInitialHostLookup = false
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()

	execute := func(statement string, values ...any) { must(session.Query(statement, values...).Exec()) }
	execute("CREATE KEYSPACE " + keyspace + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}")
	defer execute("DROP KEYSPACE " + keyspace)
	table := keyspace + ".t"
	execute("CREATE TABLE " + table + " (k int, c timeuuid, name text, price decimal, tags set<text>, history list<int>," +
		" labels map<text, bigint>, at timestamp, PRIMARY KEY (k, c)) WITH CLUSTERING ORDER BY (c ASC)")

	described, err := session.KeyspaceMetadata(keyspace)
	must(err)
	metadata := described.Tables["t"]
	check("partition key", metadata.PartitionKey[0].Name, "k")
	check("clustering key", metadata.ClusteringColumns[0].Name, "c")
	check("columns", len(metadata.Columns), 8)

	at := time.UnixMilli(1709208000123).UTC()
	for i := range rows {
		// gocql prepares what has values
		execute("INSERT INTO "+table+" (k, c, name, price, tags, history, labels, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			i%10, gocql.UUIDFromTime(at.Add(time.Duration(i)*time.Millisecond)), fmt.Sprint("row ", i), inf.NewDec(int64(i), 2),
			[]string{"a", "b"}, []int{i, i + 1}, map[string]int64{"x": int64(i)}, at)
	}
	execute("INSERT INTO " + table + " (k, c, name) VALUES (77, now(), 'simple')")

	var name string
	var price *inf.Dec
	var tags []string
	var history []int
	var labels map[string]int64
	var read time.Time
	must(session.Query("SELECT name, price, tags, history, labels, at FROM "+table+" WHERE k = ? LIMIT 1", 3).
		Scan(&name, &price, &tags, &history, &labels, &read))
	check("name", name, "row 3")
	check("price", price.String(), "0.03")
	check("tags", tags, []string{"a", "b"})
	check("history", history, []int{3, 4})
	check("labels", labels, map[string]int64{"x": 3})
	check("at", read.UTC(), at)
	must(session.Query("SELECT name, price FROM " + table + " WHERE k = 77").Scan(&name, &price))
	check("the simple row", name, "simple")

	count := 0
	pages := session.Query("SELECT k, name FROM " + table).PageSize(7).Iter()
	var k int
	for pages.Scan(&k, &name) {
		count++
	}
	must(pages.Close())
	check("rows over pages of seven", count, rows+1)

	batch := session.NewBatch(gocql.LoggedBatch)
	batch.Query("DELETE FROM "+table+" WHERE k = ?", 77)
	batch.Query("DELETE FROM "+table+" WHERE k = ?", 3)
	must(session.ExecuteBatch(batch))
	must(session.Query("SELECT COUNT(*) FROM " + table).Scan(&count))
	check("rows after the batch", count, rows-10)

	err = session.Query("SELECT * FROM " + keyspace + ".nothing").Exec()
	refused, is := err.(gocql.RequestError)
	check("an unknown table is an answer", is, true)
	check("of class invalid", refused.Code(), gocql.ErrCodeInvalid)
}

func check(what string, got, expected any) {
	if !reflect.DeepEqual(got, expected) {
		log.Panicf("%s: %v instead of %v", what, got, expected)
	}
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
