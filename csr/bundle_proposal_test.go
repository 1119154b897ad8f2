package csr

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// proposalExample is the data block of the Cluster API proposal, which has its base64
// in one line.
const proposalExample = `-----BEGIN ATTESTATION DATA-----
S25vd2luZyBtZSBBbGFuIFBhcnRyaWRnZSwga25vd2luZyB5b3UgS3ViZXJuZXRlcyBjbHVzdGVyLCBhaGEh
-----END ATTESTATION DATA-----
`

func TestParseProposal(t *testing.T) {
	der := clientRequest(t, keyP256())
	request := block(BlockRequest, der)
	text := []byte("Knowing me Alan Partridge, knowing you Kubernetes cluster, aha!")
	long := bytes.Repeat(text, 1000)
	unwrapped := "-----BEGIN ATTESTATION DATA-----\n" + base64.StdEncoding.EncodeToString(long) + "\n-----END ATTESTATION DATA-----\n"
	for name, test := range map[string]struct {
		block []byte
		want  []byte
	}{
		"the proposal's example":   {[]byte(proposalExample), text},
		"wrapped":                  {block(BlockProposalData, text), text},
		"one byte":                 {block(BlockProposalData, text[:1]), text[:1]},
		"one whole line":           {block(BlockProposalData, text[:48]), text[:48]},
		"much in one line":         {[]byte(unwrapped), long},
		"much in lines of 64":      {block(BlockProposalData, long), long},
		"49 bytes in one line":     {[]byte("-----BEGIN ATTESTATION DATA-----\n" + strings.Repeat("AAAA", 16) + "AA==\n-----END ATTESTATION DATA-----\n"), make([]byte, 49)},
		"two lines, one of a byte": {block(BlockProposalData, long[:49]), long[:49]},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := ParseProposal(join(request, test.block))
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			if diff := cmp.Diff(&Bundle{Request: der, Data: test.want}, b); diff != "" {
				t.Errorf("%s", diff)
			}
			_, err = b.Marshal()
			wantRule(t, "Encode", err, checkProvider)
		})
	}
}

func TestParseProposalRefuses(t *testing.T) {
	der := clientRequest(t, keyP256())
	request, data := block(BlockRequest, der), block(BlockProposalData, make([]byte, 100))
	inOneLine := []byte("-----BEGIN CERTIFICATE REQUEST-----\n" + base64.StdEncoding.EncodeToString(der) + "\n-----END CERTIFICATE REQUEST-----\n")
	lines := func(text string) []byte {
		return join(request, []byte("-----BEGIN ATTESTATION DATA-----\n"+text+"\n-----END ATTESTATION DATA-----\n"))
	}
	a64, a68 := strings.Repeat("A", 64), strings.Repeat("A", 68)
	for name, test := range map[string]struct {
		text []byte
		want Check
	}{
		"request alone":               {request, checkBlock},
		"data alone":                  {data, checkBlock},
		"data first":                  {join(data, request), checkBlock},
		"data twice":                  {join(request, data, data), checkBlock},
		"request twice":               {join(request, request, data), checkBlock},
		"with a provider":             {join(request, block(BlockProvider, []byte("tpm/v1")), data), checkBlock},
		"today's data":                {join(request, block(BlockData, make([]byte, 100))), checkBlock},
		"GKE's blocks":                {join(request, data, block("ATTESTATION SIGNATURE", []byte{1})), checkBlock},
		"request in one line":         {join(inOneLine, data), checkBase64},
		"two long lines":              {lines(a68 + "\n" + a68), checkBase64},
		"a long line after a short":   {lines(a64 + "\n" + a68), checkBase64},
		"a short line after a long":   {lines(a68 + "\nAAAA"), checkBase64},
		"one long line of 65 columns": {lines(a64 + "A"), checkBase64},
		"one long line, unused bits":  {lines(a64 + "AB=="), checkBase64},
		"one long line, padded twice": {lines(a64 + "AA==AA=="), checkBase64},
		"one long line with CR":       {lines(a64 + "AA\rA"), checkBase64},
		"one long line with CR LF":    {lines(a68 + "\r"), checkBase64},
		"empty data":                  {join(request, block(BlockProposalData, nil)), checkBlock},
		"no DER":                      {join(block(BlockRequest, []byte{1}), data), checkRequestDER},
		"text after":                  {join(request, data, []byte("a\n")), checkBlock},
		"nothing":                     {nil, checkBundleSize},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseProposal(test.text)
			wantRule(t, name, err, test.want)
		})
	}
}

func FuzzParseProposal(f *testing.F) {
	request := block(BlockRequest, clientRequest(f, keyP256()))
	f.Add(join(request, []byte(proposalExample)))
	f.Add(join(request, block(BlockProposalData, make([]byte, 100))))
	f.Add(request)
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ParseProposal(text)
		if err != nil {
			var v *Error
			if !errors.As(err, &v) || b != nil {
				t.Fatalf("bundle %v, error %v", b, err)
			}
			return
		}
		first, rest := pem.Decode(text)
		second, rest := pem.Decode(rest)
		if first == nil || second == nil || len(rest) > 0 || !bytes.Equal(first.Bytes, b.Request) || !bytes.Equal(second.Bytes, b.Data) {
			t.Fatalf("encoding/pem reads %+v, %+v and leaves %q", first, second, rest)
		}
		wrapped := join(block(BlockRequest, b.Request), block(BlockProposalData, b.Data))
		oneLine := join(block(BlockRequest, b.Request), []byte("-----BEGIN ATTESTATION DATA-----\n"+base64.StdEncoding.EncodeToString(b.Data)+"\n-----END ATTESTATION DATA-----\n"))
		if !bytes.Equal(text, wrapped) && !bytes.Equal(text, oneLine) {
			t.Fatalf("%q has a third encoding", text)
		}
	})
}
