package azure

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"

	"github.com/smallstep/pkcs7"

	"github.com/nodeattest/nodeattest/cloud/azure"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
)

// FuzzVerify: another library reads the same certificate, signer and content of an accepted document.
// The fuzzer either sends a document, or has the platform sign the content that it likes.
func FuzzVerify(f *testing.F) {
	cloud, err := cloudtest.OpenAzure(cloudtest.AzureOptions{})
	if err != nil {
		f.Fatal(err)
	}
	e, list := load(f)
	for _, v := range list {
		f.Add(v.Document, false)
		if p, err := pkcs7.Parse(v.Document); err == nil && len(p.Content) > 0 {
			f.Add(p.Content, true)
		}
	}
	e.roots, e.intermediates = append(e.roots, cloud.Root()), append(e.intermediates, cloud.Intermediate())
	verifier := e.verifier(f)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		if sign {
			var err error
			if data, err = cloud.Sign(data); err != nil {
				t.Fatal(err)
			}
		}
		now := e.Time
		if sign {
			now = cloud.Leaf().NotBefore.AddDate(0, 0, 1)
		}
		if d, err := verifier.Verify(context.Background(), data, now); err == nil {
			compare(t, data, d)
		}
	})
}

func compare(t *testing.T, data []byte, d *azure.Document) {
	t.Helper()
	p, err := pkcs7.Parse(data)
	if err != nil {
		t.Fatalf("the other library refuses it: %v", err)
	}
	signer := p.GetOnlySigner()
	if len(p.Certificates) != 1 || signer == nil || !signer.Equal(d.Chain[0]) || len(p.Signers[0].AuthenticatedAttributes) > 0 {
		t.Fatalf("another signer: %v", signer)
	}
	var content struct{ VMID, SubscriptionID, Nonce string }
	if err := json.Unmarshal(p.Content, &content); err != nil {
		t.Fatal(err)
	}
	if lower := bytes.ToLower; string(lower([]byte(content.VMID))) != d.VMID || string(lower([]byte(content.SubscriptionID))) != d.SubscriptionID || content.Nonce != d.Nonce {
		t.Errorf("read as %+v and %+v", d, content)
	}
}

// BenchmarkVerify compares a verification with another library's, which reads no content.
func BenchmarkVerify(b *testing.B) {
	e, list := load(b)
	der, v := list["as-it-is"].Document, e.verifier(b)
	b.Run("azure", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := v.Verify(context.Background(), der, e.Time); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("smallstep", func(b *testing.B) {
		b.ReportAllocs()
		roots := newNaive(e).intermediates // it takes no intermediates but those in the document
		for b.Loop() {
			p, err := pkcs7.Parse(der)
			if err != nil {
				b.Fatal(err)
			}
			if err := p.VerifyWithChainAtTime(roots, e.Time); err != nil {
				b.Fatal(err)
			}
		}
	})
}
