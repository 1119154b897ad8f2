package csr_test

import (
	"testing"

	"github.com/nodeattest/nodeattest/csr"
)

func TestIssuedRecordClientOf(t *testing.T) {
	good := csr.IssuedRecord{CredentialID: goodCredential, NodeName: goodNode, SignerName: csr.SignerClientTPM}
	if !good.ClientOf(goodNode, goodCredential) {
		t.Fatal("good record refused")
	}
	for name, c := range map[string]struct {
		change     func(*csr.IssuedRecord)
		node       string
		credential string
	}{
		"another node":       {func(*csr.IssuedRecord) {}, "node-2", goodCredential},
		"another credential": {func(*csr.IssuedRecord) {}, goodNode, goodCredential + "0"},
		"no node":            {func(r *csr.IssuedRecord) { r.NodeName = "" }, "", goodCredential},
		"no credential":      {func(r *csr.IssuedRecord) { r.CredentialID = "" }, goodNode, ""},
		"serving":            {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerServingTPM }, goodNode, goodCredential},
		"recovery":           {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerRecoveryTPM }, goodNode, goodCredential},
		"insecure":           {func(r *csr.IssuedRecord) { r.SignerName = csr.SignerClientInsecure }, goodNode, goodCredential},
		"no signer":          {func(r *csr.IssuedRecord) { r.SignerName = "" }, goodNode, goodCredential},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			if r.ClientOf(c.node, c.credential) {
				t.Error("accepted")
			}
		})
	}
	if new(csr.IssuedRecord).ClientOf("", "") {
		t.Error("the zero record is somebody's")
	}
}

func TestCredentialIDOfNoCertificate(t *testing.T) {
	if id := csr.CredentialID(nil); id != "" {
		t.Errorf("got %q", id)
	}
}
