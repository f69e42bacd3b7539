//go:build gocql1

package main

import "github.com/gocql/gocql"

type (
	Query   = gocql.Query
	RowData = gocql.RowData
	Session = gocql.Session
)

var newCluster, errNotFound = gocql.NewCluster, gocql.ErrNotFound
