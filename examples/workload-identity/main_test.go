package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nodeattest/nodeattest/claims"
	"github.com/nodeattest/nodeattest/tpmsim"
)

const output = `Two machines join the cluster with their TPMs
  node-a has a certificate for system:node:node-a
  node-b has a certificate for system:node:node-b

The kubelet of node-a asks for a token for a pod on its node
  subject  system:serviceaccount:shop:cart
  pod      cart-0
  node     node-a, UID uid-of-node-a

The pod presents it to a service, over a connection with its node's certificate
  from node-a: accepted
    system:serviceaccount:shop:cart on node-a (node-name, node-uid, certificate-provider-id, registered-provider-id, registered-machine)

The token is stolen
  from node-b, attested just as well: REFUSED, 401 Unauthorized
    node-name: got a token of node node-a, want node node-b
  from a machine that never joined: REFUSED, 403 Forbidden
    node-certificate: got a connection without a verified client certificate, want one

The Node of node-a is deleted
  from node-a: REFUSED, 401 Unauthorized
    node-gone: got none, want node node-a: nodes "node-a" not found
  in a TokenReview: accepted, system:serviceaccount:shop:cart

The pod is deleted
  in a TokenReview: REFUSED, service account token has been invalidated
`

func TestRun(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v after\n%s", err, &out)
	}
	if diff := cmp.Diff(output, out.String()); diff != "" {
		t.Errorf("the output differs (-want +got):\n%s", diff)
	}
	if strings.Contains(out.String(), "eyJ") {
		t.Error("a token is printed")
	}
}

func TestRunFails(t *testing.T) {
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := run(ctx, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want %v", err, context.Canceled)
		}
	})
	t.Run("no TPM", func(t *testing.T) {
		tpmsim.New(t, tpmsim.Options{}) // the only simulator of a process is taken
		if err := run(t.Context(), &bytes.Buffer{}); !errors.Is(err, tpmsim.ErrInUse) {
			t.Errorf("got %v, want %v", err, tpmsim.ErrInUse)
		}
	})
}

// joined returns the story's cluster, its service and the token.
func joined(t *testing.T) (*cluster, *service, string, *bytes.Buffer) {
	t.Helper()
	c := newCluster(join(t.Context(), "node-a", "node-b"))
	s := startService(c)
	t.Cleanup(s.Close)
	var out bytes.Buffer
	s.story = &out
	issued, err := c.issue(t.Context(), "cart-0")
	if err != nil {
		t.Fatal(err)
	}
	return c, s, issued.Token.Reveal(), &out
}

// TestPresent: the program must notice what is accepted and should not be, is refused and
// should not be, or is refused by another check.
func TestPresent(t *testing.T) {
	c, s, token, out := joined(t)
	nodeA, nodeB := c.machines.list[0], c.machines.list[1]
	for _, tt := range []struct {
		name string
		from machine
		want claims.Check
	}{
		{"accepted", nodeA, claims.CheckNodeName},
		{"refused", nodeB, ""},
		{"another check", nodeB, claims.Check("node-uid")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out.Reset()
			err := s.present(t.Context(), tt.name, tt.from, token, tt.want)
			if err == nil || !strings.HasPrefix(err.Error(), tt.name+": ") || out.Len() != 0 {
				t.Errorf("%s: got %v, printed %q", tt.name, err, out)
			}
		})
	}
	if err := s.present(t.Context(), "good", nodeA, token, ""); err != nil {
		t.Error(err)
	}
}

// TestUnrecorded: a certificate that the same CA signed and nobody recorded is no proof of
// an attestation.
func TestUnrecorded(t *testing.T) {
	c, s, token, _ := joined(t)
	nodeA := c.machines.list[0]
	kept := *nodeA.issued
	c.machines.list[0].issued = &kept
	kept.Record.CredentialID = "X509SHA256=another"
	if err := s.present(t.Context(), "unrecorded", nodeA, token, claims.CheckNodeCertificate); err != nil {
		t.Error(err)
	}
}

// TestRegistry: the program is its own registry of machines.
func TestRegistry(t *testing.T) {
	c, s, token, _ := joined(t)
	if _, err := c.machine(t.Context(), "node-c"); !errors.Is(err, claims.ErrNotFound) {
		t.Errorf("got %v, want %v", err, claims.ErrNotFound)
	}
	nodeA := c.machines.list[0]
	c.objects.Put("nodes", claims.Object{Name: "node-a", UID: "uid-of-node-a", ProviderID: "sim:///node-b"})
	if err := s.present(t.Context(), "another provider ID", nodeA, token, claims.Check("node-provider-id")); err != nil {
		t.Error(err)
	}
	response, err := s.Client().Get(s.URL) // no token and no certificate
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil || response.StatusCode != http.StatusForbidden {
		t.Errorf("status %s, %v", response.Status, err)
	}
}

// TestExit runs the program in a process of its own.
func TestExit(t *testing.T) {
	const mode = "WORKLOAD_IDENTITY_TEST"
	switch os.Getenv(mode) {
	case "good":
		main()
		return
	case "bad":
		tpmsim.New(t, tpmsim.Options{})
		main()
		return
	}
	for _, tt := range []struct {
		mode   string
		status int
		stderr string
	}{{"good", 0, ""}, {"bad", 1, "workload-identity: tpmsim: "}} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExit$")
		cmd.Env = append(cmd.Environ(), mode+"="+tt.mode)
		var stderr strings.Builder
		cmd.Stderr = &stderr
		err := cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != tt.status || !strings.HasPrefix(stderr.String(), tt.stderr) {
			t.Errorf("%s: status %d, stderr %q (%v), want %d, %q", tt.mode, got, &stderr, err, tt.status, tt.stderr)
		}
	}
}
