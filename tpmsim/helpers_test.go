package tpmsim_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/tpmsim"
)

// simulator is tpmsim.New, but skips the test in a build without cgo.
func simulator(t testing.TB, opts tpmsim.Options) *tpmsim.TPM {
	t.Helper()
	needCGO(t)
	return tpmsim.New(t, opts)
}

func needCGO(t testing.TB) {
	t.Helper()
	tpm, err := tpmsim.Open(tpmsim.Options{EKs: []tpmsim.Algorithm{}, AKs: []tpmsim.AK{}})
	if errors.Is(err, tpmsim.ErrNoCGO) {
		t.Skip(err)
	}
	testkit.NoError(t, err)
	tpm.Close()
}

// onBoth runs a test on each emulator.
func onBoth(t *testing.T, opts tpmsim.Options, test func(t *testing.T, tpm *tpmsim.TPM)) {
	t.Run("simulator", func(t *testing.T) { test(t, simulator(t, opts)) })
	t.Run("swtpm", func(t *testing.T) { test(t, tpmsim.Swtpm(t, opts)) })
}

// readNV reads an index with the index itself and an empty password, in small pieces.
func readNV(t testing.TB, tpm transport.TPM, index tpm2.TPMHandle) []byte {
	t.Helper()
	pub, err := tpm2.NVReadPublic{NVIndex: index}.Execute(tpm)
	if err != nil {
		t.Fatalf("NV index %#x: %v", uint32(index), err)
	}
	contents, err := pub.NVPublic.Contents()
	testkit.NoError(t, err)
	var data []byte
	for len(data) < int(contents.DataSize) {
		rsp, err := tpm2.NVRead{
			AuthHandle: tpm2.AuthHandle{Handle: index, Name: pub.NVName, Auth: tpm2.PasswordAuth(nil)},
			NVIndex:    tpm2.NamedHandle{Handle: index, Name: pub.NVName},
			Size:       uint16(min(500, int(contents.DataSize)-len(data))),
			Offset:     uint16(len(data)),
		}.Execute(tpm)
		if err != nil {
			t.Fatalf("NV index %#x: %v", uint32(index), err)
		}
		data = append(data, rsp.Data.Buffer...)
	}
	return data
}

// createPrimary makes a primary key of the endorsement hierarchy from a TPMT_PUBLIC
// and flushes it.
func createPrimary(t testing.TB, tpm transport.TPM, template []byte) *tpm2.TPMTPublic {
	t.Helper()
	rsp, err := tpm2.CreatePrimary{
		PrimaryHandle: tpm2.TPMRHEndorsement,
		InPublic:      tpm2.BytesAs2B[tpm2.TPMTPublic](template),
	}.Execute(tpm)
	testkit.NoError(t, err)
	if _, err := (tpm2.FlushContext{FlushHandle: rsp.ObjectHandle}).Execute(tpm); err != nil {
		t.Fatal(err)
	}
	public, err := rsp.OutPublic.Contents()
	testkit.NoError(t, err)
	return public
}

// getRandom is a harmless command.
func getRandom(tpm transport.TPM) error {
	rsp, err := tpm2.GetRandom{BytesRequested: 8}.Execute(tpm)
	if err != nil {
		return err
	}
	if bytes.Equal(rsp.RandomBytes.Buffer, make([]byte, 8)) {
		return errors.New("eight zeros")
	}
	return nil
}
