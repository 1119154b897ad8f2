//go:build unix

package membership

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

const (
	pathEnv = "NODEATTEST_TEST_REGISTRY"
	roleEnv = "NODEATTEST_TEST_REGISTRY_ROLE"
	argEnv  = "NODEATTEST_TEST_REGISTRY_ARG"
)

// TestMain turns the test binary into a process of the tests below. It does not
// go through the testing package, so that a process starts and ends fast.
func TestMain(m *testing.M) {
	roles := map[string]func(path, arg string) error{"write": writeUntilKilled, "race": race, "full": fillDisk, "hold": hold}
	role := roles[os.Getenv(roleEnv)]
	if role == nil {
		os.Exit(m.Run())
	}
	if err := role(os.Getenv(pathEnv), os.Getenv(argEnv)); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// process returns a process of this binary.
func process(path, role, arg string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), pathEnv+"="+path, roleEnv+"="+role, argEnv+"="+arg)
	return c
}

func unixOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// writeUntilKilled lets nodes join, live and go. It prints a line before each write ("?") and after it has
// succeeded ("!"):
//
//	<mark> <node> <state> <last end in Unix seconds>
func writeUntilKilled(path, seedText string) error {
	ctx := context.Background()
	r, err := OpenFileRegistry(ctx, path, fileScope, RegistryOptions{})
	if err != nil {
		return err
	}
	say := func(mark, node string, state State, end int64) {
		fmt.Printf("%s %s %s %d\n", mark, node, state, end) // unbuffered
	}
	seed, _ := strconv.ParseUint(seedText, 10, 64)
	random := rand.New(rand.NewPCG(seed, 1))
	for {
		n := random.IntN(12)
		node := "node-" + strconv.Itoa(n)
		record, err := r.Lookup(ctx, node)
		for err == nil && record != nil && record.State == StateResting { // another name takes its place
			n += 12
			node = "node-" + strconv.Itoa(n)
			record, err = r.Lookup(ctx, node)
		}
		c := fileClaim(node)
		c.ProviderID = "test://" + strings.Repeat("p", 900)
		switch {
		case err != nil:
			return err
		case record == nil:
			say("?", node, StateReserved, 0)
			record, err = r.Reserve(ctx, c, time.Now().Add(time.Hour))
		case record.State == StateReserved:
			say("?", node, StateBound, 0)
			record, err = r.Bind(ctx, record, time.Time{}, nil)
		case record.State == StateBound && (record.LastEnd.IsZero() || random.IntN(4) > 0):
			end := time.Now().Add(time.Duration(1+random.IntN(1e6)) * time.Hour)
			say("?", node, StateBound, max(end.Unix()+1, unixOrZero(record.LastEnd)))
			record, err = r.Bind(ctx, record, end, nil)
		case record.State == StateBound && random.IntN(40) == 0:
			say("?", node, StateResting, record.LastEnd.Unix())
			if _, err = r.Release(ctx, node, c.MachineUID); err == nil {
				record, err = r.Lookup(ctx, node)
			}
		default:
			continue
		}
		if err != nil {
			return err
		}
		say("!", node, record.State, unixOrZero(record.LastEnd))
	}
}

// killPoints is the number of processes that TestKill kills: NODEATTEST_KILL_POINTS, or a default that a
// run of all tests has time for.
func killPoints(t *testing.T) int {
	if text := os.Getenv("NODEATTEST_KILL_POINTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("NODEATTEST_KILL_POINTS is %q, want a number of processes", text)
		}
		return n
	}
	return 50
}

// TestKill kills processes that write, each at a random moment, and looks
// after each whether the file holds everything that was acknowledged, and nothing
// that was never asked for.
func TestKill(t *testing.T) {
	path := newRegistryFile(t)
	known := map[string]string{} // state and last end by node
	acknowledged, unacknowledged := 0, 0
	points := killPoints(t)
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
		unacknowledged += checkSurvivors(t, path, known, asked)
		if t.Failed() {
			t.Fatalf("at kill point %d", i)
		}
	}
	t.Logf("%d processes killed: %d changes acknowledged and none lost, %d more made and not acknowledged", points, acknowledged, unacknowledged)
	if acknowledged < points/2 {
		t.Errorf("only %d changes were acknowledged: the processes were killed too early to prove anything", acknowledged)
	}
}

// killOne runs one process and kills it at a random moment after its first word.
// It returns the whole lines that it said.
func killOne(t *testing.T, path string, seed int) []string {
	c := process(path, "write", strconv.Itoa(seed))
	out := testkit.Must(c.StdoutPipe())
	testkit.NoError(t, c.Start())
	reader := bufio.NewReader(out)
	first, err := reader.ReadString('\n')
	if err != nil {
		t.Fatalf("the process said nothing: %v", err)
	}
	for seed%2 == 1 && !strings.Contains("\n"+first, "\n! ") { // every other one is killed after its first success
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatalf("the process stopped after %q: %v", first, err)
		}
		first += line
	}
	time.Sleep(time.Duration(rand.Int64N(int64(15 * time.Millisecond))))
	testkit.NoError(t, c.Process.Kill())
	rest := testkit.Must(io.ReadAll(reader))
	_ = c.Wait() // killed
	whole := first + string(rest)
	whole = whole[:strings.LastIndexByte(whole, '\n')] // a line can be cut off
	return strings.Split(whole, "\n")
}

// checkSurvivors reads the file as a new process does. It returns the number of changes that were made
// but not acknowledged.
func checkSurvivors(t *testing.T, path string, known, asked map[string]string) (unacknowledged int) {
	t.Helper()
	r := testkit.Must(OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{}))
	defer r.Close()
	found := map[string]string{}
	for record, err := range r.Records(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		found[record.NodeName] = fmt.Sprintf("%s %d", record.State, unixOrZero(record.LastEnd))
		byUID, err := r.LookupMachineUID(t.Context(), record.MachineUID)
		if err != nil || byUID == nil || !reflect.DeepEqual(byUID, record) {
			t.Errorf("node %s by its UID: got %v, %v", record.NodeName, byUID, err)
		}
		byMachine, err := r.LookupMachine(t.Context(), record.Machine)
		if err != nil || (byMachine != nil) != record.HoldsMachine() {
			t.Errorf("node %s by its machine: got %v, %v", record.NodeName, byMachine, err)
		}
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

// race waits for a line on standard input, claims the node, machine and UID
// that it is given ("node machine uid"), and then its own.
func race(path, arg string) error {
	words := strings.Fields(arg)
	if len(words) != 3 {
		return fmt.Errorf("got %q", arg)
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return err
	}
	ctx := context.Background()
	err := joinInTurn(ctx, path, Claim{NodeName: words[0], Machine: attest.Identity("test:" + words[1]), MachineUID: words[2]})
	switch {
	case err == nil:
		fmt.Println("won")
		return nil
	case errors.Is(err, attest.Check("registry-name")), errors.Is(err, attest.Check("registry-machine")),
		errors.Is(err, attest.Check("registry-machine-uid")), errors.Is(err, attest.Check("registry-reserved")):
		fmt.Println("lost:", err)
	default:
		return err
	}
	return joinInTurn(ctx, path, fileClaim("own-"+strconv.Itoa(os.Getpid()))) // no loser is stuck
}

// joinInTurn opens the file for each call, and so takes turns with others.
func joinInTurn(ctx context.Context, path string, c Claim) error {
	call := func(do func(r *FileRegistry) error) error {
		r, err := OpenFileRegistry(ctx, path, fileScope, RegistryOptions{})
		if err != nil {
			return err
		}
		return errors.Join(do(r), r.Close())
	}
	var record *Record
	err := call(func(r *FileRegistry) (err error) {
		record, err = r.Reserve(ctx, c, time.Now().Add(time.Hour))
		return err
	})
	if err != nil {
		return err
	}
	return call(func(r *FileRegistry) (err error) {
		_, err = r.Bind(ctx, record, time.Now().Add(time.Hour), nil)
		return err
	})
}

// raceProcesses starts 8 processes, releases them together and returns their output after "ready".
func raceProcesses(t *testing.T, path string, racer func(i int) string) []string {
	t.Helper()
	const racers = 8
	said := make([]string, racers)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range racers {
		ready.Add(1)
		done.Add(1)
		c := process(path, "race", racer(i))
		in, err1 := c.StdinPipe()
		out, err2 := c.StdoutPipe()
		testkit.NoError(t, errors.Join(err1, err2, c.Start()))
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

func TestProcessRace(t *testing.T) {
	for what, racer := range map[string]func(i int) string{
		"for a node name":   func(i int) string { return fmt.Sprintf("shared m-%d u-%d", i, i) },
		"for a machine":     func(i int) string { return fmt.Sprintf("n-%d shared u-%d", i, i) },
		"for a Machine UID": func(i int) string { return fmt.Sprintf("n-%d m-%d shared", i, i) },
	} {
		t.Run(what, func(t *testing.T) {
			path := newRegistryFile(t)
			won := 0
			said := raceProcesses(t, path, racer)
			for _, s := range said {
				if strings.HasPrefix(s, "won") {
					won++
				} else if !strings.HasPrefix(s, "lost:") {
					t.Errorf("a process said %q", s)
				}
			}
			if won != 1 {
				t.Errorf("%d processes won, want 1", won)
			}
			records := 0
			for r, err := range openFile(t, path, nil).Records(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				records++
				if r.State != StateBound || r.LastEnd.IsZero() {
					t.Errorf("got %+v", r)
				}
			}
			if records != len(said) {
				t.Errorf("got %d records, want one of each of %d processes", records, len(said))
			}
		})
	}
}

// overAfter is a context that is over once it has been asked so many times whether it is.
type overAfter struct {
	context.Context
	asked int
}

func (c *overAfter) Err() error {
	if c.asked--; c.asked < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// hold has the file open until it is told to close it.
func hold(path, _ string) error {
	r, err := OpenFileRegistry(context.Background(), path, fileScope, RegistryOptions{})
	if err != nil {
		return err
	}
	fmt.Println("open")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return r.Close()
}

// Who comes second waits for as long as its context says.
func TestOpenWaits(t *testing.T) {
	path := newRegistryFile(t)
	holder := process(path, "hold", "")
	in, err1 := holder.StdinPipe()
	out, err2 := holder.StdoutPipe()
	testkit.NoError(t, errors.Join(err1, err2, holder.Start()))
	if said, _ := bufio.NewReader(out).ReadString('\n'); said != "open\n" {
		t.Fatalf("the holder said %q", said)
	}
	_, err := OpenFileRegistry(&overAfter{Context: t.Context(), asked: 1}, path, fileScope, RegistryOptions{})
	if !errors.Is(err, ErrInUse) || !errors.Is(err, refusal.ErrRetry) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want ErrInUse to be tried again", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := OpenFileRegistry(over, path, fileScope, RegistryOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: got %v", err)
	}
	opened := make(chan error)
	go func() {
		r, err := OpenFileRegistry(t.Context(), path, fileScope, RegistryOptions{})
		if err == nil {
			err = r.Close()
		}
		opened <- err
	}()
	time.Sleep(2 * lockPoll)
	if err := errors.Join(in.Close(), holder.Wait()); err != nil {
		t.Error(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("after the first was closed: %v", err)
	}
}
