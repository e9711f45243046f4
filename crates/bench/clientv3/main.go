// Runs one kind of calls with etcd's Go client and prints its cost as one line of JSON.
//
// The program `compare-client` runs it beside the same calls of other clients.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
)

// The cost of a run: completed operations, CPU time of this process and wall clock time.
type cost struct {
	Operations uint64 `json:"operations"`
	CPU        int64  `json:"cpu_us"`
	Elapsed    int64  `json:"elapsed_us"`
}

var (
	endpoint = flag.String("endpoint", "", "the address of the server")
	work     = flag.String("work", "", "get, put, list or watch")
	prefix   = flag.String("prefix", "", "the key of get and put, the prefix of list and watch")
	value    = flag.Int("value-bytes", 0, "the size of the value of a put")
	events   = flag.Uint64("events", 0, "the number of events that end a watch")
	clients  = flag.Int("clients", 1, "the number of concurrent callers")
	warmUp   = flag.Duration("warm-up", 0, "the time before the measurement")
	measured = flag.Duration("measured", 0, "the time of the measurement")
)

func main() {
	flag.Parse()
	result, err := run()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (cost, error) {
	config := clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 10 * time.Second}
	client, err := kubernetes.New(config)
	if err != nil {
		return cost{}, err
	}
	defer client.Close()
	ctx := context.Background()
	text := string(make([]byte, *value))
	switch *work {
	case "get":
		return repeat(func() error {
			_, err := client.Client.Get(ctx, *prefix)
			return err
		})
	case "put":
		return repeat(func() error {
			_, err := client.Client.Put(ctx, *prefix, text)
			return err
		})
	case "list":
		return repeat(func() error {
			_, err := client.Kubernetes.List(ctx, *prefix, kubernetes.ListOptions{})
			return err
		})
	case "watch":
		return watch(ctx, client.Client)
	}
	return cost{}, fmt.Errorf("unknown work %q", *work)
}

// Calls from all callers until the time is over; counts what ends within the measurement.
func repeat(call func() error) (cost, error) {
	var operations atomic.Uint64
	var measuring, over atomic.Bool
	failures := make(chan error, *clients)
	var callers sync.WaitGroup
	for range *clients {
		callers.Add(1)
		go func() {
			defer callers.Done()
			for !over.Load() {
				if err := call(); err != nil {
					failures <- err
					return
				}
				if measuring.Load() {
					operations.Add(1)
				}
			}
		}()
	}
	time.Sleep(*warmUp)
	cpu, started := cpuTime(), time.Now()
	measuring.Store(true)
	time.Sleep(*measured)
	measuring.Store(false)
	result := cost{operations.Load(), cpuTime() - cpu, time.Since(started).Microseconds()}
	over.Store(true)
	callers.Wait()
	select {
	case err := <-failures:
		return cost{}, err
	default:
		return result, nil
	}
}

// Receives events from the first revision on.
func watch(ctx context.Context, client *clientv3.Client) (cost, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The connection is not measured.
	if _, err := client.Get(ctx, *prefix); err != nil {
		return cost{}, err
	}
	cpu, started := cpuTime(), time.Now()
	var received uint64
	for response := range client.Watch(ctx, *prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := response.Err(); err != nil {
			return cost{}, err
		}
		received += uint64(len(response.Events))
		if received >= *events {
			return cost{received, cpuTime() - cpu, time.Since(started).Microseconds()}, nil
		}
	}
	return cost{}, fmt.Errorf("the watch ended after %d events", received)
}

// The CPU time of this process in microseconds, user and system.
func cpuTime() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	micros := func(time syscall.Timeval) int64 { return time.Sec*1_000_000 + int64(time.Usec) }
	return micros(usage.Utime) + micros(usage.Stime)
}
