// The ways in which the Go driver, gocql 2 (with tag gocql1, 1.7), reads results: results HOST PORT VERSION. tests/drivers/test_whole_results.py has the commands.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
)

type row = map[string]any

type way = func(query *Query) ([]row, error)

var whole = map[string]way{
	"Iter.Scan":     byScan,
	"Iter.Scanner":  byScanner,
	"Iter.MapScan":  byMapScan,
	"Iter.SliceMap": func(query *Query) ([]row, error) { return query.Iter().SliceMap() },
	"page by page":  byPages,
}

func main() {
	log.SetFlags(0)
	cluster := newCluster(os.Args[1])
	cluster.Port = number(os.Args[2])
	cluster.ProtoVersion = number(os.Args[3])
	cluster.Timeout = 30 * time.Second
	session, err := cluster.CreateSession()
	must(err)
	defer session.Close()
	prepared := ""
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		command, rest, _ := strings.Cut(lines.Text(), " ")
		var answer any = row{}
		var err error
		switch command {
		case "read":
			// The driver prepares each SELECT, too.
			pageRows, statement, _ := strings.Cut(rest, " ")
			answer, err = byEachWay(session, statement, number(pageRows))
		case "prepare":
			prepared = rest
			if !strings.HasPrefix(prepared, "INSERT") { // what has values is prepared when it is executed with them
				err = session.Query(prepared).Exec()
			}
		case "execute":
			answer, err = byEachWay(session, prepared, number(rest))
		case "insert":
			words := strings.Fields(rest)
			value := row{}
			for _, field := range words[1:] {
				value[field] = field
			}
			err = session.Query(prepared, number(words[0]), value).Exec()
		}
		if err != nil {
			fmt.Println("failed", err)
			continue
		}
		shown, err := json.Marshal(answer)
		must(err)
		fmt.Println(string(shown))
	}
}

func byEachWay(session *Session, statement string, pageRows int) (any, error) {
	query := func() *Query { return session.Query(statement).PageSize(pageRows) }
	read := map[string][]any{}
	for name, by := range whole {
		rows, err := by(query())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		read[name] = []any{}
		for _, each := range rows {
			read[name] = append(read[name], shown(each))
		}
	}
	first := row{}
	if err := query().MapScan(first); errors.Is(err, errNotFound) {
		first = nil
	} else if err != nil {
		return nil, fmt.Errorf("Query.MapScan: %w", err)
	}
	return row{"whole": read, "first": row{"Query.MapScan": shown(first)}}, nil
}

func byScan(query *Query) (rows []row, err error) {
	iter := query.Iter()
	data, err := iter.RowData()
	if err != nil {
		return nil, err
	}
	for iter.Scan(data.Values...) {
		rows = append(rows, named(data))
	}
	return rows, iter.Close()
}

func byScanner(query *Query) (rows []row, err error) {
	iter := query.Iter()
	data, err := iter.RowData()
	if err != nil {
		return nil, err
	}
	scanner := iter.Scanner()
	for scanner.Next() {
		if err := scanner.Scan(data.Values...); err != nil {
			return nil, err
		}
		rows = append(rows, named(data))
	}
	return rows, scanner.Err()
}

func byMapScan(query *Query) (rows []row, err error) {
	iter := query.Iter()
	for {
		read := row{}
		if !iter.MapScan(read) {
			return rows, iter.Close()
		}
		rows = append(rows, read)
	}
}

func byPages(query *Query) (rows []row, err error) {
	for state := []byte{}; ; {
		iter := query.PageState(state).Iter()
		state = iter.PageState()
		page, err := iter.SliceMap()
		if err != nil {
			return nil, err
		}
		if rows = append(rows, page...); len(state) == 0 {
			return rows, nil
		}
	}
}

func named(data RowData) row {
	read := row{}
	for i, name := range data.Columns {
		read[name] = shown(data.Values[i])
	}
	return read
}

// shown is a value behind pointers, null for a zero: the driver reads null as the zero of its type.
func shown(value any) any {
	of := reflect.ValueOf(value)
	for of.IsValid() && (of.Kind() == reflect.Pointer || of.Kind() == reflect.Interface) {
		of = of.Elem()
	}
	if !of.IsValid() || of.IsZero() {
		return nil
	}
	if fields, is := of.Interface().(row); is {
		read := row{}
		for name, field := range fields {
			read[name] = shown(field)
		}
		return read
	}
	return of.Interface()
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		log.Panic(err)
	}
}
