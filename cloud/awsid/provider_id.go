package awsid

import (
	"context"
	"strings"

	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/nodename"
	"github.com/nodeattest/nodeattest/internal/strictjson"
	"github.com/nodeattest/nodeattest/refusal"
)

// ProviderID asks for the instance's document, and returns the provider ID that Kubernetes' cloud
// provider gives the instance's Node: aws:///<availability zone>/<instance ID>. It is what a node
// claims: no signature is verified, and anything in the place of the metadata server can say
// something else. The error is a [*refusal.Error] with the check "metadata-server".
func (s *Source) ProviderID(ctx context.Context) (string, error) {
	if s == nil {
		s = &Source{}
	}
	body, err := s.client.EC2(ctx, "/latest/dynamic/instance-identity/document", maxContent)
	if err != nil {
		return "", err
	}
	var region, zone, instance string
	err = strictjson.Members{"region": strictjson.Into(&region), "availabilityZone": strictjson.Into(&zone), "instanceId": strictjson.Into(&instance)}.Parse(body)
	switch {
	case err != nil:
		return "", &refusal.Error{Check: metadata.CheckMetadata, Got: "a document that cannot be read", Want: "an instance identity document", Err: err}
	case !regionPattern.MatchString(region):
		return "", refuse(metadata.CheckMetadata, "region "+refusal.Quote(region), "the name of a region")
	case !strings.HasPrefix(zone, region) || zone == region || !nodename.ValidLabel(zone):
		return "", refuse(metadata.CheckMetadata, "availabilityZone "+refusal.Quote(zone), "a zone of region "+region)
	case !instancePattern.MatchString(instance):
		return "", refuse(metadata.CheckMetadata, "instanceId "+refusal.Quote(instance), "i- and 8 or 17 hexadecimal digits")
	}
	return "aws:///" + zone + "/" + instance, nil
}
