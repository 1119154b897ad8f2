package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/nodeattest/nodeattest/csr"
)

// Labels of blocks that no constant of package csr names.
const (
	blockNewRequest  = "NEW CERTIFICATE REQUEST" // what older tools write
	blockCertificate = "CERTIFICATE"
	blockPublicKey   = "PUBLIC KEY"
)

// A block is one PEM block, as far as it could be read.
type block struct {
	label  string
	at     int    // where it begins in the text
	size   int    // its length there
	body   []byte // the content, decoded up to the first fault
	faults []fault
}

type fault struct {
	at  int
	why string
}

const (
	begin = "-----BEGIN "
	end   = "-----END "
	dash  = "-----"
)

// showPEM reads PEM blocks leniently, one after the other, and then says whether the
// strict reader of the form takes them.
func showPEM(t *tree, text []byte) {
	var labels []string
	last := 0
	for last < len(text) {
		b, ok := nextBlock(text, last)
		if between := bytes.TrimSpace(text[last:b.at]); len(between) > 0 {
			t.line("text outside of blocks", fmt.Sprintf("%s at byte %d, not shown", sizeOf(b.at-last), last))
		}
		if !ok {
			break
		}
		last = b.at + b.size
		labels = append(labels, b.label)
		t.in("block "+quotedTo(b.label, 80), fmt.Sprintf("at byte %d, %s, content %s", b.at, sizeOf(b.size), sizeOf(len(b.body))), func() {
			for _, f := range b.faults {
				t.stop(f.at, f.why)
			}
			showBlock(t, b)
		})
	}
	t.showForm(text, labels)
}

// nextBlock finds the first block behind from. Where there is none, at is the text's
// end.
func nextBlock(text []byte, from int) (b block, ok bool) {
	for at := from; at < len(text); {
		line := lineAt(text, at)
		if bytes.HasPrefix(line, []byte(begin)) || len(line) > 0 && strings.HasPrefix(begin, string(line)) && at+len(line) == len(text) {
			return readBlock(text, at), true
		}
		at += len(line)
	}
	return block{at: len(text)}, false
}

// lineAt returns the line that begins at a byte, with its line feed.
func lineAt(text []byte, at int) []byte {
	if n := bytes.IndexByte(text[at:], '\n'); n >= 0 {
		return text[at : at+n+1]
	}
	return text[at:]
}

// readBlock reads the block whose BEGIN line is at a byte.
func readBlock(text []byte, start int) block {
	b := block{at: start}
	first := lineAt(text, start)
	label := strings.TrimRight(string(first), " \t\r\n")
	label, closed := strings.CutSuffix(strings.TrimPrefix(label, begin), dash)
	b.label = label
	if !closed {
		b.fail(start, "the BEGIN line is not complete")
	}
	at := start + len(first)
	var body []byte
	var offsets []int // of the lines in the text, where b.body's lines begin
	var begins []int  // the same in body
	ended := false
	for at < len(text) && !ended {
		line := lineAt(text, at)
		switch {
		case bytes.HasPrefix(line, []byte(end)):
			ended = true
			if strings.TrimRight(string(line), "\r\n") != end+label+dash {
				b.fail(at, "the END line is not that of the block")
			}
		case bytes.HasPrefix(line, []byte(begin)):
			b.size = at - start
			b.fail(at, "another block begins before this one ends")
			b.decode(body, offsets, begins)
			return b
		case bytes.ContainsRune(line, ':'):
			b.fail(at, "a header, or other text that is not base64")
		default:
			offsets, begins = append(offsets, at), append(begins, len(body))
			body = append(body, bytes.TrimRight(line, " \t\r\n")...)
		}
		at += len(line)
	}
	b.size = at - start
	if !ended {
		b.fail(len(text), "the text ends before the END line")
		body = body[:len(body)/4*4]
	}
	b.decode(body, offsets, begins)
	return b
}

func (b *block) fail(at int, why string) { b.faults = append(b.faults, fault{at, why}) }

// decode decodes the base64 of a block up to its first fault.
func (b *block) decode(body []byte, offsets, begins []int) {
	var err error
	b.body, err = base64.StdEncoding.AppendDecode(nil, body)
	corrupt, ok := err.(base64.CorruptInputError)
	if !ok {
		return
	}
	at := b.at
	for i, begin := range begins {
		if begin <= int(corrupt) {
			at = offsets[i] + int(corrupt) - begin
		}
	}
	b.fail(at, "not base64 from here on")
}

// showBlock shows the content of a block that this program knows by its label. Others
// are not shown: they may hold a private key.
func showBlock(t *tree, b block) {
	r := newReader(t, b.body, 0)
	switch b.label {
	case csr.BlockRequest, blockNewRequest:
		showRequest(r)
	case blockCertificate, csr.BlockGKECertificate:
		showCertificate(r)
	case blockPublicKey:
		showKeyInfo(r)
	case csr.BlockProvider:
		t.line("provider", quoted(string(b.body)))
	case csr.BlockData, csr.BlockProposalData:
		showBinary(r)
	case csr.BlockGKESignature:
		showBareSignature(r)
	case csr.BlockGKEIdentity:
		showJSON(t, b.body, nil, nil)
	default:
		t.line("content", "not shown")
	}
}

// showForm names the form that the labels make, and says whether the SDK's strict
// reader of that form takes the text.
func (t *tree) showForm(text []byte, labels []string) {
	has := map[string]bool{}
	for _, label := range labels {
		has[label] = true
	}
	form, parse := "", func([]byte) error { return nil }
	switch {
	case has[csr.BlockGKESignature] || has[csr.BlockGKEIdentity]:
		form = "GKE's dialect"
		parse = func(b []byte) error { _, err := csr.ParseGKE(b); return err }
	case has[csr.BlockProposalData]:
		form = "the proposal's dialect"
		parse = func(b []byte) error { _, err := csr.ParseProposal(b); return err }
	case has[csr.BlockRequest] || has[csr.BlockProvider] || has[csr.BlockData]:
		form = "a request bundle"
		parse = func(b []byte) error { _, err := csr.Parse(b); return err }
	case has[blockCertificate] || has[blockNewRequest] || has[blockPublicKey]:
		t.line("form", "PEM blocks that are no request bundle")
		return
	default:
		t.fault("no block that this program knows")
		return
	}
	t.in("form", form, func() {
		if err := parse(text); err != nil {
			t.fault("refused: " + err.Error())
			return
		}
		t.line("strict reading", "passed")
	})
}
