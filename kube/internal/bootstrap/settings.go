package bootstrap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nodeattest/nodeattest/bootstraptoken"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
	"github.com/nodeattest/nodeattest/refusal"
)

const fileKind = "BootstrapController"

// The controllers that a configuration can name.
const (
	Signer    = "signer"    // keeps the signatures of ConfigMap cluster-info
	Publisher = "publisher" // keeps its kubeconfig
	Cleaner   = "cleaner"   // deletes the Secrets of expired tokens
)

// Settings are the program's configuration file, which kube/deploy/bootstrap/config.yaml documents.
type Settings struct {
	configfile.Header `json:",inline"`

	// Controllers names the controllers to run: signer, publisher or both, or cleaner alone.
	Controllers []string `json:"controllers"`
	// Publisher is the document of the publisher; nil without one.
	Publisher *Publication `json:"publisher"`
	// Namespace is where the lease is; empty: nodeattest-system.
	Namespace string `json:"namespace"`
	// MetricsAddress and HealthAddress are where the program listens; empty: "127.0.0.1:8086" and
	// ":8087"; "0": nowhere.
	MetricsAddress string `json:"metricsAddress"`
	HealthAddress  string `json:"healthAddress"`

	// path is the file that was read, and sum the digest of its contents (Follow).
	path string
	sum  [sha256.Size]byte
}

// Publication says which document the publisher writes.
type Publication struct {
	// Server is the API server's URL in the document.
	Server string `json:"server"`
	// Servers are the URLs of other API servers: a CA under which one of them serves is not dropped.
	Servers []string `json:"servers"`
	// CAFile contains the CAs in the document, in PEM. It is read again when it changes.
	CAFile string `json:"caFile"`
	// Replace also replaces a document that another program wrote.
	Replace bool `json:"replace"`
}

// Read reads and checks a file. An unknown or duplicate field is an error, and so is a second document.
func Read(path string) (*Settings, error) {
	text, err := files.Read(path, configfile.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("settings: %w", err)
	}
	s, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("settings: %s: %w", path, err)
	}
	s.path, s.sum = path, sha256.Sum256(text)
	return s, nil
}

// Parse is [Read] for the text of a file.
func Parse(text []byte) (*Settings, error) {
	s := new(Settings)
	if _, err := configfile.Decode(text, s); err != nil {
		return nil, err
	}
	s.Namespace = cmp.Or(s.Namespace, "nodeattest-system")
	s.MetricsAddress, s.HealthAddress = cmp.Or(s.MetricsAddress, "127.0.0.1:8086"), cmp.Or(s.HealthAddress, ":8087")
	return s, s.check()
}

// Runs reports whether a controller is to run.
func (s *Settings) Runs(controller string) bool { return slices.Contains(s.Controllers, controller) }

// Account is the name of the service account and of the lease: the cleaner has its own, since it may
// delete Secrets and the others may write cluster-info.
func (s *Settings) Account() string {
	if s.Runs(Cleaner) {
		return "bootstrap-cleaner"
	}
	return "bootstrap-signer"
}

func (s *Settings) check() error {
	if err := s.Header.Check(fileKind); err != nil {
		return err
	}
	known := []string{Signer, Publisher, Cleaner}
	sorted := slices.Sorted(slices.Values(s.Controllers))
	unknown := slices.ContainsFunc(sorted, func(name string) bool { return !slices.Contains(known, name) })
	switch {
	case len(sorted) == 0:
		return refusal.Config("controllers", "", "at least one of "+strings.Join(known, ", "))
	case unknown, len(slices.Compact(sorted)) != len(s.Controllers):
		return refusal.Config("controllers", refusal.Quotes(s.Controllers), "each of "+strings.Join(known, ", ")+" at most once")
	case s.Runs(Cleaner) && len(s.Controllers) > 1:
		return refusal.Config("controllers", refusal.Quotes(s.Controllers), "cleaner in a process and a service account of its own: it deletes Secrets")
	case s.Runs(Publisher) != (s.Publisher != nil):
		return refusal.Config("publisher", "only one of the section and the controller", "both or neither")
	case len(validation.IsDNS1123Label(s.Namespace)) != 0:
		return refusal.Config("namespace", refusal.Quote(s.Namespace), "the name of a namespace")
	case s.Publisher != nil:
		return s.Publisher.check()
	}
	return nil
}

func (p *Publication) check() error {
	if p.CAFile == "" {
		return refusal.Config("publisher.caFile", "", "a path")
	}
	for _, server := range append([]string{p.Server}, p.Servers...) {
		if _, err := (&bootstraptoken.ClusterInfo{Server: server, SystemRoots: true}).Marshal(); err != nil {
			return fmt.Errorf("publisher.server and servers: %w", err)
		}
	}
	return nil
}

// Follow watches the file that [Read] has read until ctx ends. Once it has changed it calls end: the
// program is then restarted with it. A configuration with an error is logged, and changes nothing.
func (s *Settings) Follow(ctx context.Context, end func()) {
	files.FollowConfiguration(ctx, s.path, s.changed, end)
}

// changed reports whether the file has changed since it was read, and can be used.
func (s *Settings) changed() (bool, error) {
	next, err := Read(s.path)
	return err == nil && next.sum != s.sum, err
}
