// Rack is the controller and the node's program with one more kind of evidence, which has two
// versions of its data format. It uses nothing that a commit before it has not, so that it can be
// built there too: with the tag previous, where evidence has one version and packages other names.
//
//	rack controller --config=FILE ...
//	rack -config FILE credential | rotate | status
package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"os"
	"strconv"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/attest/document"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "controller" {
		os.Exit(controller(os.Args[2:], os.Stderr, plugin{Name: provider, Identities: []attest.Grammar{{Kind: provider}}, Versions: []int{1, 2}, Open: open}))
	}
	os.Exit(node(os.Args[1:], os.Stdout, os.Stderr, nodeEvidence{Name: provider, Open: openNode}))
}

const (
	provider   = "rack"
	checkBoard = attest.Check("rack-board")
)

// key is that of the rack, which signs documents about its boards.
func key() ed25519.PrivateKey {
	seed := sha256.Sum256([]byte("the key of a rack"))
	return ed25519.NewKeyFromSeed(seed[:])
}

// board is a document. The signed bytes begin with the version of the format.
type board struct {
	Name      string
	Value     []byte
	Signature []byte
}

func (b *board) signed(version int) []byte {
	return append([]byte(provider+" "+strconv.Itoa(version)+" "+b.Name+" "), b.Value...)
}

// open makes the control plane's side. versions are the ones that it reads.
func open(decode func(into any) error) (attest.Kind, error) {
	var section struct {
		Versions []int `json:"versions"`
	}
	if err := decode(&section); err != nil {
		return nil, err
	}
	return document.NewKind(document.KindConfig{Provider: provider, Versions: section.Versions, Identities: []attest.Grammar{{Kind: provider}},
		ValueSize: sha256.Size, Platform: boards{}})
}

// boards verifies documents.
type boards struct{}

// read reads a document, and refuses every other encoding of the same contents.
func read(data []byte) (*board, error) {
	b := new(board)
	err := json.Unmarshal(data, b)
	if again, _ := json.Marshal(b); err != nil || !bytes.Equal(again, data) {
		return nil, &attest.Error{Check: checkBoard, Got: "another document", Want: "JSON as the rack writes it", Err: err}
	}
	return b, nil
}

func (boards) Read(data []byte) (*document.Claims, error) {
	b, err := read(data)
	if err != nil {
		return nil, err
	}
	return &document.Claims{Machine: attest.Identity(provider + ":" + b.Name), Value: b.Value}, nil
}

func (r boards) Verify(ctx context.Context, data []byte, q *attest.Inquiry) (*document.Claims, error) {
	b, err := read(data)
	if err != nil {
		return nil, err
	}
	if err := q.Budget.Signature(ctx); err != nil {
		return nil, err
	}
	if !ed25519.Verify(key().Public().(ed25519.PublicKey), b.signed(q.Version), b.Signature) {
		return nil, &attest.Error{Check: checkBoard, Got: "another signature", Want: "the rack's, for version " + strconv.Itoa(q.Version)}
	}
	return r.Read(data)
}

// openNode makes the node's side. versions are the ones that it writes, the newest first.
func openNode(decode func(into any) error) (evidence, error) {
	var section struct {
		Board    string `json:"board"`
		Versions []int  `json:"versions"`
	}
	if err := decode(&section); err != nil {
		return nil, err
	}
	var provers []func(context.Context) (attest.Prover, error)
	for _, version := range section.Versions {
		provers = append(provers, func(context.Context) (attest.Prover, error) {
			return document.NewProver(provider, version, slot{section.Board, version})
		})
	}
	return kindOf(provers), nil
}

// slot is where a board is.
type slot struct {
	board   string
	version int
}

func (s slot) Machine(context.Context) (attest.Identity, error) {
	return attest.Identity(provider + ":" + s.board), nil
}

func (s slot) Document(_ context.Context, value []byte) ([]byte, error) {
	b := &board{Name: s.board, Value: value}
	b.Signature = ed25519.Sign(key(), b.signed(s.version))
	return json.Marshal(b)
}
