// Package inventory holds what the inventory says of a machine against what the machine's
// cloud says.
package inventory

import (
	"slices"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/refusal"
)

// Compare refuses a machine whose provider ID in the inventory, if there is one, is not that of
// the machine that a document names. scheme is that of its cloud's provider IDs, such as
// "gce", and same says whether what follows "gce://" is the machine. An ID of another cloud is
// refused; of other platforms a document knows nothing, and theirs are accepted. The error is a
// [*refusal.Error] with the check and what is wanted, and wraps [attest.CheckMembership], so that
// the requester is not told what the inventory has.
func Compare(q *attest.Inquiry, check refusal.Check, scheme string, same func(id string) bool, machine string) error {
	if q.Machine == nil {
		return nil
	}
	of, id, _ := strings.Cut(q.Machine.ProviderID, "://")
	of = strings.ToLower(of)
	if of == scheme && same(id) || of != scheme && !slices.Contains([]string{"aws", "azure", "gce"}, of) {
		return nil
	}
	return &refusal.Error{Check: check, Got: machine, Want: q.Machine.ProviderID + ", as the inventory has it",
		Err: attest.CheckMembership} // which keeps it from whoever asks
}

// Instance is for Compare whether a provider ID, after "aws://", is that of an instance of Amazon EC2 in
// a region: /<zone>/<instance ID>, with a zone of the region or none.
func Instance(region, instanceID string) (same func(id string) bool, machine string) {
	return func(id string) bool {
		zone, ours := strings.CutSuffix(id, "/"+instanceID)
		return ours && (zone == "/" || strings.HasPrefix(zone, "/"+region) && !strings.Contains(zone[1:], "/"))
	}, "aws:///" + region + ".../" + instanceID
}
