package tpm

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/google/go-tpm/tpm2"

	"github.com/nodeattest/nodeattest/internal/testkit/tpmlab"
)

// fakeNV is a TPM that has NV indexes and nothing else, larger ones than a simulator's.
type fakeNV map[tpm2.TPMHandle][]byte

// Send answers one command.
func (f fakeNV) Send(command []byte) ([]byte, error) {
	tag, body := uint16(tpm2.TPMSTNoSessions), []byte(nil)
	at := func(n int) uint32 { return binary.BigEndian.Uint32(command[n:]) }
	capability := func(c tpm2.TPMCap, u tpm2.TPMUCapabilities) []byte {
		return append([]byte{0}, tpm2.Marshal(tpm2.TPMSCapabilityData{Capability: c, Data: u})...)
	}
	switch code := tpm2.TPMCC(at(6)); {
	case code == tpm2.TPMCCGetCapability && tpm2.TPMCap(at(10)) == tpm2.TPMCapHandles:
		body = capability(tpm2.TPMCapHandles, tpm2.NewTPMUCapabilities(tpm2.TPMCapHandles, &tpm2.TPMLHandle{Handle: slices.Sorted(maps.Keys(f))}))
	case code == tpm2.TPMCCGetCapability:
		property := tpm2.TPMSTaggedProperty{Property: tpm2.TPMPT(at(14)), Value: 2048}
		body = capability(tpm2.TPMCapTPMProperties, tpm2.NewTPMUCapabilities(tpm2.TPMCapTPMProperties,
			&tpm2.TPMLTaggedTPMProperty{TPMProperty: []tpm2.TPMSTaggedProperty{property}}))
	case code == tpm2.TPMCCNVReadPublic:
		index := tpm2.TPMHandle(at(10))
		area := tpm2.TPMSNVPublic{NVIndex: index, NameAlg: tpm2.TPMAlgSHA256, Attributes: tpm2.TPMANV{AuthRead: true, NoDA: true}, DataSize: uint16(len(f[index]))}
		body = append(tpm2.Marshal(tpm2.New2B(area)), tpm2.Marshal(tpm2.TPM2BName{Buffer: tpmlab.DigestName(1)})...)
	case code == tpm2.TPMCCNVRead:
		tag = uint16(tpm2.TPMSTSessions)
		rest := command[22+at(18):]
		size, offset := binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:])
		read := tpm2.Marshal(tpm2.TPM2BMaxNVBuffer{Buffer: f[tpm2.TPMHandle(at(14))][offset : offset+size]})
		body = slices.Concat(binary.BigEndian.AppendUint32(nil, uint32(len(read))), read, []byte{0, 0, 1, 0, 0})
	default:
		return nil, errors.New("not of a fake")
	}
	out := binary.BigEndian.AppendUint16(nil, tag)
	out = binary.BigEndian.AppendUint32(out, uint32(10+len(body)))
	return append(binary.BigEndian.AppendUint32(out, 0), body...), nil
}
