"""Word tables by language: labels of answers, and words that change the number next to them."""
