curl "$DPICL_URL/v1/tasks/support.team/answers" \
  --header "Authorization: Bearer $DPICL_API_KEY" \
  --header "Content-Type: application/json" \
  --data '{"query": "My parcel was left in the rain."}'
curl "$DPICL_URL/v1/budgets" --header "Authorization: Bearer $DPICL_API_KEY"
