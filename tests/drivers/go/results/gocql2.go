//go:build !gocql1

package main

import gocql "github.com/apache/cassandra-gocql-driver/v2"

type (
	Query   = gocql.Query
	RowData = gocql.RowData
	Session = gocql.Session
)

var newCluster, errNotFound = gocql.NewCluster, gocql.ErrNotFound
