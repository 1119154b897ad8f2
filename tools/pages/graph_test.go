package main

import "testing"

// TestDraw: an arrow that closes a circle is marked, and does not count for the layers.
func TestDraw(t *testing.T) {
	arrows := map[arrow]int{}
	count(arrows, module+"oid\n"+
		module+"csr "+module+"oid "+module+"refusal fmt\n"+
		module+"attest/tpm "+module+"csr "+module+"attest "+module+"internal/der "+module+"internal/tpmop\n"+
		module+"attest/attesttest "+module+"attest/tpm\n"+
		module+"internal/tpmop "+module+"attest/tpm/statement\n"+
		module+"internal/testkit/x "+module+"oid\n")
	const want = "" +
		"3  attest/attesttest  attest\n" +
		"2  attest             csr internal\n" +
		"1  csr                oid\n" +
		"   internal/testkit   oid\n" +
		"0  internal           ^attest\n" +
		"   oid\n" +
		"6 folders, 4 layers, 6 arrows, of which 1 climb (^)\n"
	if got := draw(arrows); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
