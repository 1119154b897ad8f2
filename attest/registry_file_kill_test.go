//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package attest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	registryPathEnv  = "NODEATTEST_TEST_REGISTRY"
	registryRacerEnv = "NODEATTEST_TEST_REGISTRY_RACER"
	registrySeedEnv  = "NODEATTEST_TEST_REGISTRY_SEED"
)

var akScope = RegistryScope{Road: RoadAK}

// TestMain turns the test binary into a process of the tests below. It does not
// go through the testing package, so that a process starts and ends fast.
func TestMain(m *testing.M) {
	path := os.Getenv(registryPathEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	var err error
	if racer := os.Getenv(registryRacerEnv); racer != "" {
		err = raceForRegistry(path, racer)
	} else {
		err = writeRegistryUntilKilled(path)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// registryProcess returns a process of this binary.
func registryProcess(path string, env ...string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(append(os.Environ(), registryPathEnv+"="+path), env...)
	return c
}

// writeRegistryUntilKilled lets nodes join, live and go. It says what it is about
// to do ("?"), and what was acknowledged ("!"), one line each:
//
//	<mark> <node> <state> <last end in Unix seconds>
func writeRegistryUntilKilled(path string) error {
	ctx := context.Background()
	f, err := OpenFileRegistry(path, akScope, nil)
	if err != nil {
		return err
	}
	say := func(mark, node string, state RecordState, end int64) {
		fmt.Printf("%s %s %s %d\n", mark, node, state, end) // unbuffered
	}
	seed, _ := strconv.ParseUint(os.Getenv(registrySeedEnv), 10, 64)
	random := rand.New(rand.NewPCG(seed, 1))
	for {
		// Names that rest are not used again: others take their place.
		node := "node-" + strconv.Itoa(random.IntN(12)+int(seed)/8*12)
		claim := RegistryClaim{NodeName: node, Machine: Identity("test:" + node), MachineUID: "uid", ProviderID: "test://" + strings.Repeat("p", 900)}
		r, err := f.Lookup(ctx, node)
		switch {
		case err != nil:
			return err
		case r == nil:
			say("?", node, RecordReserved, 0)
			r, err = f.Reserve(ctx, claim, time.Now().Add(MaxReservation))
		case r.State == RecordReserved:
			say("?", node, RecordBound, 0)
			r, err = f.Bind(ctx, r)
		case r.State == RecordBound && (r.LastEnd.IsZero() || random.IntN(4) > 0):
			end := time.Now().Add(time.Duration(1+random.IntN(1e6)) * time.Hour)
			say("?", node, RecordBound, max(end.Unix()+1, unixOrZero(r.LastEnd)))
			r, err = f.Raise(ctx, r, end)
		case r.State == RecordBound && random.IntN(40) == 0:
			say("?", node, RecordResting, r.LastEnd.Unix())
			if err = f.Release(ctx, node, "uid"); err == nil {
				r, err = f.Lookup(ctx, node)
			}
		default:
			continue
		}
		if err != nil {
			return err
		}
		say("!", node, r.State, unixOrZero(r.LastEnd))
	}
}

// killPoints is how many processes TestRegistryKill kills.
func killPoints() int {
	if testing.Short() {
		return 50
	}
	return 1000
}

// TestRegistryKill kills processes that write, each at a random moment, and looks
// after each whether the file holds everything that was acknowledged, and nothing
// that was never asked for.
func TestRegistryKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "registry")
	if err := CreateFileRegistry(context.Background(), path, akScope); err != nil {
		t.Fatal(err)
	}
	known := map[string]string{} // state and last end by node
	acknowledged, torn := 0, 0
	points := killPoints()
	for i := range points {
		lines := killOne(t, path, i)
		asked := map[string]string{}
		for _, line := range lines {
			mark, rest, _ := strings.Cut(line, " ")
			node, what, _ := strings.Cut(rest, " ")
			switch mark {
			case "?":
				asked[node] = what
			case "!":
				acknowledged++
				known[node] = what
				delete(asked, node)
			default:
				t.Fatalf("kill point %d: the process said %q", i, line)
			}
		}
		torn += checkSurvivors(t, path, known, asked)
		if t.Failed() {
			t.Fatalf("at kill point %d", i)
		}
		if i%100 == 99 { // a fresh start, so that new nodes join all along
			if err := errors.Join(os.Remove(path), CreateFileRegistry(context.Background(), path, akScope)); err != nil {
				t.Fatal(err)
			}
			clear(known)
		}
	}
	t.Logf("%d processes killed: %d changes acknowledged, %d more made and not acknowledged", points, acknowledged, torn)
	if acknowledged < points/2 {
		t.Errorf("only %d changes were acknowledged: the processes were killed too early to prove anything", acknowledged)
	}
}

// killOne runs one process and kills it at a random moment behind its first word.
// It returns the whole lines that it said.
func killOne(t *testing.T, path string, seed int) []string {
	c := registryProcess(path, registrySeedEnv+"="+strconv.Itoa(seed))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(20*time.Second, func() { _ = c.Process.Kill() })
	defer stuck.Stop()
	reader := bufio.NewReader(out)
	first, err := reader.ReadString('\n')
	if err != nil {
		t.Fatalf("the process said nothing: %v", err)
	}
	for seed%2 == 1 && !strings.Contains("\n"+first, "\n! ") { // every other one is killed behind its first success
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("the process stopped behind %q: %v", first, err)
		}
		first += line
	}
	time.Sleep(time.Duration(rand.Int64N(int64(15 * time.Millisecond))))
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	whole := first + string(rest)
	whole = whole[:strings.LastIndexByte(whole, '\n')] // a line can be cut off
	return strings.Split(whole, "\n")
}

// checkSurvivors reads the file as a new process does. It returns how many changes
// were made that nobody was told of.
func checkSurvivors(t *testing.T, path string, known, asked map[string]string) (unacknowledged int) {
	t.Helper()
	f, err := OpenFileRegistry(path, akScope, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	records, err := f.Records(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range records {
		found[r.NodeName] = fmt.Sprintf("%s %d", r.State, unixOrZero(r.LastEnd))
	}
	for node, want := range known {
		if found[node] == "" {
			t.Errorf("node %s: lost, acknowledged was %q", node, want)
		}
	}
	for node, got := range found {
		if got == known[node] {
			continue
		}
		// A raise asks for a time that is rounded up: one second of tolerance.
		want, ok := asked[node]
		if !ok || !sameOrASecondLess(got, want) {
			t.Errorf("node %s: got %q, acknowledged was %q, asked for %q", node, got, known[node], want)
			continue
		}
		known[node] = got
		unacknowledged++
	}
	return unacknowledged
}

func sameOrASecondLess(got, want string) bool {
	gotState, gotEnd, _ := strings.Cut(got, " ")
	wantState, wantEnd, _ := strings.Cut(want, " ")
	g, err1 := strconv.ParseInt(gotEnd, 10, 64)
	w, err2 := strconv.ParseInt(wantEnd, 10, 64)
	return err1 == nil && err2 == nil && gotState == wantState && (g == w || g == w-1)
}

// raceForRegistry waits for a line on standard input, claims the node and machine
// that it is given ("node machine"), and then its own.
func raceForRegistry(path, racer string) error {
	f, err := OpenFileRegistry(path, akScope, nil)
	if err != nil {
		return err
	}
	defer f.Close()
	node, machine, _ := strings.Cut(racer, " ")
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	join := func(node, machine string) error {
		r, err := f.Reserve(ctx, RegistryClaim{NodeName: node, Machine: Identity("test:" + machine)}, time.Now().Add(time.Minute))
		if err == nil {
			r, err = f.Bind(ctx, r)
		}
		if err == nil {
			_, err = f.Raise(ctx, r, time.Now().Add(time.Hour))
		}
		return err
	}
	err = join(node, machine)
	switch {
	case err == nil:
		fmt.Println("won")
		return nil
	case errors.Is(err, CheckRegistryName), errors.Is(err, CheckRegistryMachine), errors.Is(err, CheckRegistryReserved):
		fmt.Println("lost:", err)
	default:
		return err
	}
	own := "own-" + strconv.Itoa(os.Getpid()) // nobody who lost is stuck
	if strings.HasPrefix(node, "shared") {
		return join(own, machine)
	}
	return join(node, own)
}

// raceProcesses starts 8 processes, lets them off together and returns what they
// said behind "ready".
func raceProcesses(t *testing.T, path string, racer func(i int) string) []string {
	t.Helper()
	const racers = 8
	said := make([]string, racers)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		ready.Add(1)
		done.Add(1)
		c := registryProcess(path, registryRacerEnv+"="+racer(i))
		in, err1 := c.StdinPipe()
		out, err2 := c.StdoutPipe()
		if err := errors.Join(err1, err2, c.Start()); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer done.Done()
			reader := bufio.NewReader(out)
			first, _ := reader.ReadString('\n')
			ready.Done()
			<-start
			_, err := io.WriteString(in, "go\n")
			rest, err2 := io.ReadAll(reader)
			if err := errors.Join(err, err2, c.Wait()); err != nil || first != "ready\n" {
				t.Errorf("racer %d: %v: %s%s", i, err, first, rest)
			}
			said[i] = string(rest)
		}()
	}
	ready.Wait()
	close(start)
	done.Wait()
	return said
}

func TestRegistryProcessRace(t *testing.T) {
	for what, racer := range map[string]func(round, i int) string{
		"for a node name": func(round, i int) string { return fmt.Sprintf("shared-%d m-%d-%d", round, round, i) },
		"for a machine":   func(round, i int) string { return fmt.Sprintf("n-%d-%d shared-%d", round, i, round) },
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "registry")
			if err := CreateFileRegistry(context.Background(), path, akScope); err != nil {
				t.Fatal(err)
			}
			const rounds = 5
			for round := range rounds {
				won := 0
				for _, s := range raceProcesses(t, path, func(i int) string { return racer(round, i) }) {
					if strings.HasPrefix(s, "won") {
						won++
					} else if !strings.HasPrefix(s, "lost:") {
						t.Errorf("a process said %q", s)
					}
				}
				if won != 1 {
					t.Errorf("round %d: %d processes won, want 1", round, won)
				}
			}
			f, err := OpenFileRegistry(path, akScope, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			records, err := f.Records(context.Background())
			if err != nil || len(records) != 8*rounds {
				t.Errorf("got %d records, want each of %d processes with one: %v", len(records), 8*rounds, err)
			}
			for _, r := range records {
				if r.State != RecordBound || r.LastEnd.IsZero() {
					t.Errorf("got %+v", r)
				}
			}
		})
	}
}
