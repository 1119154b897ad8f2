package settings

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/membership"
	"github.com/nodeattest/nodeattest/csr"
	"github.com/nodeattest/nodeattest/kube/internal/configfile"
	"github.com/nodeattest/nodeattest/kube/internal/files"
)

// Follow watches the file that [Read] has read, and those files named in it that no other reader
// follows, until ctx ends. Once they have changed it calls end; the program is then restarted
// with them, because the verifier and authorizer are made only once, from all of them. A configuration that
// the program could not start with is logged, and changes nothing.
func (s *Settings) Follow(ctx context.Context, end func()) {
	files.FollowConfiguration(ctx, s.path, s.changed, end)
}

// changed reports whether the files have changed since they were read, and can be used.
func (s *Settings) changed() (bool, error) {
	next, err := Read(s.path, s.known[len(boxed()):]...)
	if err != nil || next.sum == s.sum {
		return false, err
	}
	err = next.try()
	return err == nil, err
}

// try makes a verifier as a program does at its start, with registries in memory.
func (s *Settings) try() error {
	machines := func(context.Context, csr.Question) (*csr.Machine, error) { return nil, csr.ErrNoMachine }
	if s.Inventory.ClusterAPI == nil {
		inventory, err := s.OpenInventory()
		if err != nil {
			return err
		}
		machines = inventory.Machine
	}
	admits, err := s.NewAuthorizer(func(scope membership.Scope) (membership.Registry, membership.Lookups, error) {
		records, err := membership.NewMemoryRegistry(scope, membership.RegistryOptions{})
		return records, records, err
	}, func(context.Context, string) (bool, error) { return false, nil })
	if err != nil {
		return err
	}
	ring, err := attest.NewStaticKeyRing(attest.NewRingKey(s.clock()))
	if err != nil {
		return err
	}
	_, err = s.Verifier(ring, machines, admits)
	return err
}

// sumOf returns a digest of a configuration's text and of the certificates and revocation
// lists that it names.
func (s *Settings) sumOf(text []byte) ([sha256.Size]byte, error) {
	tree, err := configfile.JSON(text)
	var fields any
	if err == nil {
		err = json.Unmarshal(tree, &fields)
	}
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	all := sha256.New()
	fmt.Fprintf(all, "%x\n", sha256.Sum256(text))
	for _, path := range append(named(fields, false), s.Cluster.CAFile) {
		read, err := files.Read(path, configfile.MaxSize) // an error is for the file's reader
		fmt.Fprintf(all, "%t %x\n", err == nil, sha256.Sum256(read))
	}
	return [sha256.Size]byte(all.Sum(nil)), nil
}

// named returns the paths in a configuration of files that are read only at the start: the texts
// below the fields for them, or in the whole tree.
func named(tree any, whole bool) (paths []string) {
	switch node := tree.(type) {
	case string:
		if whole {
			paths = []string{node}
		}
	case []any:
		for _, child := range node {
			paths = append(paths, named(child, whole)...)
		}
	case map[string]any:
		for key, child := range node {
			paths = append(paths, named(child, whole || slices.Contains([]string{"rootsFile", "intermediatesFile", "crlFiles"}, key))...)
		}
	}
	slices.Sort(paths)
	return paths
}
