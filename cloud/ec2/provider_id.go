package ec2

import (
	"context"
	"strings"

	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/names"
	"github.com/nodeattest/nodeattest/refusal"
)

// ProviderID reads the instance's identity document for the provider ID that Kubernetes' cloud
// provider gives the instance's Node: aws:///<availability zone>/<instance ID>. It is only the node's
// claim: no signature is verified, and whatever poses as the metadata server can say
// something else. The error is a [*refusal.Error] with the check "metadata-server", or one of package
// awsid.
func (s *Source) ProviderID(ctx context.Context) (string, error) {
	_, d, err := s.document(ctx)
	if err != nil {
		return "", err
	}
	if zone := d.AvailabilityZone; !strings.HasPrefix(zone, d.Region) || zone == d.Region || !names.ValidLabel(zone) {
		return "", metadata.CheckMetadata.Refuse("availabilityZone "+refusal.Quote(zone), "a zone of region "+d.Region)
	}
	return "aws:///" + d.AvailabilityZone + "/" + d.InstanceID, nil
}
