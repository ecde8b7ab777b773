"""Word tables by language: labels of answers, and words that change a number next to them."""
