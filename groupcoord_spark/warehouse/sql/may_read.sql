-- Who may read as each group, by which rule of the authorizer: rules about the group that grant or deny READ (needed to join and to
-- commit) or ALL. A DENY wins over every ALLOW: is_overruled says that a DENY covers all that the rule allows. Whoever is denied on some host,
-- or as one of the principals of a wider rule, has a row with DENY. To read a topic one also needs READ of the topic. Superusers and
-- allow.everyone.if.no.acl.found are settings of the brokers, which no log tells.
WITH rules AS (
  SELECT g.cluster, g.group_id, a.principal, a.host, a.permission, a.operation, a.resource_name, a.pattern_type
  FROM groups g
  JOIN acls a ON a.cluster = g.cluster AND a.resource_type = 'GROUP' AND a.operation IN ('READ', 'ALL')
    AND (a.pattern_type = 'LITERAL' AND a.resource_name IN (g.group_id, '*')
      OR a.pattern_type = 'PREFIXED' AND SUBSTRING(g.group_id, 1, LENGTH(a.resource_name)) = a.resource_name)
),
overruled AS (
  SELECT DISTINCT r.cluster, r.group_id, r.principal, r.host
  FROM rules r
  JOIN rules d ON d.cluster = r.cluster AND d.group_id = r.group_id AND d.permission = 'DENY'
    AND d.principal IN (r.principal, 'User:*') AND d.host IN (r.host, '*')
  WHERE r.permission = 'ALLOW'
)
SELECT r.cluster, r.group_id, r.principal, r.host, r.permission, r.operation, r.resource_name, r.pattern_type,
  CASE WHEN r.permission = 'ALLOW' THEN o.group_id IS NOT NULL END AS is_overruled
FROM rules r
LEFT JOIN overruled o ON o.cluster = r.cluster AND o.group_id = r.group_id AND o.principal = r.principal AND o.host = r.host
