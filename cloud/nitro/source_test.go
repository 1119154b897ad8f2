package nitro

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

// The node asks once for its identity, and for documents over the given nonce.
func TestSource(t *testing.T) {
	platform := cloudtest.NewNitro(t)
	ask, asked := platform.Asker(machine("1")), 0
	s, err := NewSource(SourceConfig{Ask: func(ctx context.Context, nonce, userData []byte) ([]byte, error) {
		if asked++; asked == 1 && (nonce != nil || userData != nil) {
			t.Errorf("asked first over %x and %q", nonce, userData)
		}
		return ask(ctx, nonce, userData)
	}})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if id, err := s.Machine(context.Background()); err != nil || id != "aws:aws/us-east-2/i-0123456789abcdef1" {
			t.Errorf("machine %s, %v", id, err)
		}
	}
	data := testkit.Must(s.Document(context.Background(), testNonce))
	d, err := parseInsecure(data)
	if err != nil || !bytes.Equal(d.Nonce, testNonce) || string(d.UserData) != userData || d.PublicKey != nil || asked != 2 {
		t.Errorf("got %+v, %v, asked %d times", d, err, asked)
	}
	if _, err := s.Document(context.Background(), testNonce[:31]); !errors.Is(err, checkNonce) {
		t.Errorf("a short value: %v", err)
	}
}

// The node refuses a wrong document of its NitroTPM.
func TestSourceAnswers(t *testing.T) {
	platform, b := cloudtest.NewNitro(t), newBench()
	broken := errors.New("no TPM")
	for name, ask := range map[string]func(nonce, userData []byte) ([]byte, error){
		"an error":           func([]byte, []byte) ([]byte, error) { return nil, broken },
		"nothing":            func([]byte, []byte) ([]byte, error) { return nil, nil },
		"an enclave's":       func(nonce, userData []byte) ([]byte, error) { return platform.Enclave(machine("1"), nonce, userData) },
		"over another nonce": func(_, userData []byte) ([]byte, error) { return platform.Document(machine("1"), nil, userData) },
		"over other data":    func(nonce, _ []byte) ([]byte, error) { return platform.Document(machine("1"), nonce, nil) },
		"of another time":    func(nonce, _ []byte) ([]byte, error) { return b.good().marshal()[1:], nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := testkit.Must(NewSource(SourceConfig{Ask: func(_ context.Context, nonce, userData []byte) ([]byte, error) { return ask(nonce, userData) }}))
			if _, err := s.Document(context.Background(), bytes.Repeat([]byte{1}, 32)); !errors.Is(err, checkTPM) || errors.Is(err, broken) != (name == "an error") {
				t.Errorf("%s: %v", name, err)
			}
			if _, err := s.Machine(context.Background()); strings.HasPrefix(name, "over") != (err == nil) || err != nil && !errors.Is(err, checkTPM) {
				t.Errorf("%s: machine: %v", name, err)
			}
		})
	}
}

// script writes a program in place of AWS'.
func script(t *testing.T, lines string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+lines), 0o700); err != nil {
		t.Fatal(err)
	}
	return name
}

// The tool gets nonce and user data in files, which are gone afterwards.
func TestTool(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	got := testkit.Must(Tool(script(t, `echo "$@"; cat "$2"; echo; cat "$4"`))(context.Background(), []byte("a nonce"), []byte("user data")))
	lines := strings.Split(string(got), "\n")
	if len(lines) != 3 || lines[1] != "a nonce" || lines[2] != "user data" || !strings.HasPrefix(lines[0], "--nonce "+os.Getenv("TMPDIR")) || !strings.Contains(lines[0], " --user-data ") {
		t.Errorf("got %q", lines)
	}
	if got, err := Tool(script(t, `echo "$#"`))(context.Background(), nil, nil); err != nil || string(got) != "0\n" {
		t.Errorf("over nothing: %q, %v", got, err)
	}
	if got, err := Tool(script(t, `head -c 1000000 /dev/zero`))(context.Background(), nil, nil); err != nil || len(got) != maxDocumentSize+1 {
		t.Errorf("a megabyte: %d bytes, %v", len(got), err)
	}
	_, err := Tool(script(t, `echo no such device >&2; exit 3`))(context.Background(), nil, nil)
	if !errors.Is(err, checkTPM) || !strings.Contains(err.Error(), "no such device") {
		t.Errorf("a failure: %v", err)
	}
	if _, err := Tool(filepath.Join(t.TempDir(), "none"))(context.Background(), nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no tool: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Tool(script(t, `sleep 60`))(ctx, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	for name, lines := range map[string]string{"in its place": `exec sleep 60`, "in a child, which keeps the output open": `sleep 5; :`} {
		t.Run("a tool that hangs "+name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			if got, err := Tool(script(t, lines))(ctx, []byte("a nonce"), nil); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, checkTPM) || got != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	good := script(t, `echo "$#"`)
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "none"))
	if got, err := Tool(good)(context.Background(), nil, nil); !errors.Is(err, os.ErrNotExist) || got != nil {
		t.Errorf("without a folder for files: %q, %v", got, err)
	}
}

func TestProver(t *testing.T) {
	p, err := NewProver(SourceConfig{Ask: cloudtest.NewNitro(t).Asker(machine("2"))})
	if err != nil || p.Provider() != Provider {
		t.Fatal(p, err)
	}
	err = p.Use(context.Background(), attest.StageHello, func(s attest.Session) error {
		presented, err := s.Present()
		if err == nil && presented.Machine != "aws:aws/us-east-2/i-0123456789abcdef2" {
			t.Errorf("presents %+v", presented)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
